"""The text of the shells kept inside a container, and of what they are told: any POSIX shell runs it.

Bash is used where the image has it, for it gives each command a process group of its own; else sh, with
`setsid` where that exists. While a command runs, a fork of the shell (the guard) listens in its place: told
to, or when the lab is gone, it kills the command's tree. It is older than the command, and so knows what
belongs to it; once it kills, the shell waits for it. It stops all others first: a fork bomb would leave it no
time. All of this is built into the shell: it needs no program, and no further process.

A fork costs as much as half a command. So where a command leaves no process behind, its guard is stopped and
goes on with the next one. That it stands still is seen before the command's end is told: it would read
along with the shell.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from lab.engine.sandboxes.shell_program import (
    CANNOT_CHANGE_FOLDER,
    IGNORED_SIGNALS,
    as_bytes,
    exports,
    quote,
    steering,
    unexportable,
)

HOME = "/home/agent"
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Lines longer than this are read by a program at once instead of byte by byte by the shell.
_LONG_LINE = 2048
# What the kernel would refuse anyway, told without carrying it there.
LONGEST_COMMAND = 4 * 1024 * 1024

# The guard is ended by a signal that the shell itself neither ignores nor catches (bash catches most once it
# has read with a time-out): a fork that has not yet run has its parent's handlers, and would miss it.
# What could not be written is said again: in busybox the end of any process breaks off a shell that waits for
# room in its output.
# Descriptors: 3 brings what the lab says, 4 is the true standard error (2 would show the shell's notices).
_PROGRAM = r"""
lab_newline='
'
umask 022; cd /; LC_ALL=C; PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin; export PATH
unset OLDPWD SHLVL HOSTNAME HOME
exec 3<&0 4>&2 0</dev/null 2>/dev/null
lab_signals='@SIGNALS@'
trap '' $lab_signals
lab_find() { for lab_x in /usr/bin /bin /usr/local/bin /usr/sbin /sbin; do
  if [ -x "$lab_x/$1" ]; then lab_found=$lab_x/$1; return; fi; done; lab_found=$2; }
lab_find env env; lab_env=$lab_found; lab_find dd dd; lab_dd=$lab_found; lab_setsid= lab_kind=sh
if [ "$BASH_VERSION" ]; then set -m; lab_kind=bash; eval 'exec 5<> <(:)'
else lab_find setsid; lab_setsid=$lab_found; fi
lab_memory=/sys/fs/cgroup/memory/memory.oom_control
[ -r $lab_memory ] || lab_memory=/sys/fs/cgroup/memory.events
[ -r $lab_memory ] || lab_memory=/dev/null
lab_pids=/sys/fs/cgroup/pids/pids.current
[ -r $lab_pids ] || lab_pids=/sys/fs/cgroup/pids.current
[ -r $lab_pids ] || lab_pids=
lab_root=; [ -O /proc/1 ] && lab_root=1
lab_g= lab_guarded=
lab_put() {
  lab_n=0
  until printf '\0%s %s\n' "$lab_token" "$1"; do
    lab_n=$((lab_n + 1)); [ $lab_n -lt 100 ] || return
  done
}
lab_say() { lab_put "$1"; lab_put '' >&4; }
lab_stat() {
  lab_x=
  while IFS= read -r lab_y; do lab_x="$lab_x $lab_y"; done 2>/dev/null <"/proc/$1/stat"
  case $lab_x in *') '*) ;; *) return 1;; esac
  lab_x=${lab_x##*') '}
  set -- $lab_x
  lab_state=$1 lab_parent=$2; shift 19; lab_born=$1
}
lab_held() {
  for lab_d in /proc/[1-9]*; do
    case $lab_d in /proc/1|/proc/$$|/proc/$lab_g) continue;; esac
    for lab_f in "$lab_d"/fd/*; do
      case $lab_f in *'*') if [ "$lab_root" ] || [ -O "$lab_d" ]; then
        lab_stat "${lab_d#/proc/}" && case $lab_state in Z|X) ;; *) return 0;; esac; fi;; esac
      if [ "$lab_f" -ef /proc/$$/fd/1 ] || [ "$lab_f" -ef /proc/$$/fd/4 ]; then return 0; fi
    done
  done
  return 1
}
lab_counted() { lab_oom=0; while read -r lab_x lab_y; do
  case $lab_x in oom_kill) lab_oom=$lab_y;; esac; done <$lab_memory; }
lab_room() {
  [ "$lab_most" ] && [ "$lab_pids" ] || return 0
  read -r lab_x <$lab_pids
  [ "$lab_x" -lt "$lab_most" ] || { [ "$lab_g" ] && [ "$lab_x" -eq "$lab_most" ]; }
}
lab_victims() {
  lab_all= lab_chosen=
  for lab_d in /proc/[1-9]*; do
    lab_p=${lab_d#/proc/}
    case $lab_p in 1|$$|$lab_me) continue;; esac
    lab_stat $lab_p || continue
    case $lab_state in Z|X) continue;; esac
    lab_all="$lab_all $lab_p"; eval "lab_P$lab_p=$lab_parent lab_B$lab_p=$lab_born"
  done
  for lab_p in $lab_all; do
    lab_q=$lab_p lab_take=1
    while :; do
      case $lab_q in 1|$$) break;; 0|$lab_me) lab_take=; break;; esac
      eval "lab_b=\$lab_B$lab_q lab_x=\$lab_P$lab_q"
      [ "$lab_b" ] || break
      if [ $lab_b -lt $lab_since ] || { [ $lab_b -eq $lab_since ] && [ $lab_q -lt $lab_me ]; }; then
        lab_take=; break; fi
      lab_q=$lab_x
    done
    [ "$lab_take" ] && lab_chosen="$lab_chosen $lab_p"
  done
  for lab_p in $lab_all; do unset lab_P$lab_p lab_B$lab_p; done
  [ "$lab_chosen" ]
}
lab_end() {
  lab_rounds=0
  kill -s STOP -- -1
  while lab_victims && [ $lab_rounds -lt 500 ]; do
    lab_rounds=$((lab_rounds + 1)); kill -s KILL $lab_chosen
  done
  kill -s CONT $$ $lab_all
}
lab_guard() {
  exec 1>/dev/null 4>&1
  while IFS= read -r lab_line <&3; do [ "$lab_line" = "$lab_key end" ] && break; done
  trap '' PWR
  read -r lab_me lab_x </proc/self/stat; lab_stat $lab_me; lab_since=$lab_born; lab_end
}
lab_dismiss() { kill -PWR $lab_g; kill -CONT $lab_g; wait $lab_g; lab_g=; }
lab_fresh() { [ "$lab_g" ] && { kill -KILL $lab_g; wait $lab_g; lab_g=; }; }
lab_rest() {
  for lab_d in /proc/[1-9]*; do
    case $lab_d in /proc/1|/proc/$$|/proc/$lab_g) ;; *) lab_dismiss; return;; esac
  done
  for lab_x in 1 2 3 4 5 6 7 8 9 10; do
    lab_stat $lab_g || break
    case $lab_state in T) lab_h=C; return;; Z|X) break;; esac
  done
  lab_dismiss
}
lab_purge() { lab_token=$1; kill -s KILL -- -1; lab_fresh; lab_say D; }
lab_cut() {
  lab_token=$1
  for lab_d in /proc/[1-9]*; do
    case $lab_d in /proc/1|/proc/$$|/proc/$lab_g) continue;; esac
    for lab_f in "$lab_d"/fd/*; do
      if [ "$lab_f" -ef /proc/$$/fd/1 ] || [ "$lab_f" -ef /proc/$$/fd/4 ]; then
        kill -KILL "${lab_d#/proc/}"; break; fi
    done
  done
  lab_say D
}
lab_look() {
  lab_token=$1; lab_state=-; lab_stat $2; [ "$lab_state" = T ] && kill -CONT $2; lab_say "$lab_state"; }
lab_ask() { lab_token=$1; if ! lab_held; then lab_say C; elif lab_room; then lab_say H; else lab_say F; fi; }
lab_begin() {
  lab_token=$1
  lab_room || { lab_say F; return 1; }
  lab_guarded=1
  [ "$lab_g" ] && kill -CONT $lab_g && return
  lab_guard & lab_g=$!
}
lab_in_live() { trap - $lab_signals; exec 0</dev/null 1>/proc/self/fd/1 2>/proc/self/fd/4 4>&- 5>&-; }
lab_in() { trap - $lab_signals; exec 0<"$1" 1>/proc/self/fd/1 2>/proc/self/fd/4 3<&- 4>&- 5>&-; }
lab_finish() {
  lab_c=$?
  if [ $lab_kind = bash ]; then
    lab_p=$!; wait $lab_p; lab_c=$?
    [ $lab_c -gt 128 ] && lab_settle
  fi
  lab_h=
  [ "$lab_guarded" ] && kill -STOP $lab_g
  lab_counted
  [ "$lab_guarded" ] && lab_rest
  if [ -z "$lab_h" ]; then if lab_held; then lab_h=H; else lab_h=C; fi; fi
  lab_say "E $lab_c $lab_h $lab_oom"
}
lab_settle() {
  while kill -0 $lab_p; do read -r -t 0.05 lab_x <&5; done
  wait $lab_p; lab_x=$?
  [ $lab_x -eq 127 ] || lab_c=$lab_x
}
lab_exec() {
  if [ "$lab_setsid" ] && command -v "$1" >/dev/null; then exec "$lab_setsid" "$@"; fi
  exec "$@"
}
lab_folder() {
  cd "$1" 2>/dev/null && { unset OLDPWD; return; }
  lab_x='Permission denied'
  if [ ! -e "$1" ]; then lab_x='No such file or directory'
  elif [ ! -d "$1" ]; then lab_x='Not a directory'; fi
  printf 'cd: %s: %s\n' "$1" "$lab_x" >&2; exit @CANNOT@
}
lab_made() { [ -d "$1" ] || { mkdir -p "$1" && { [ -z "$2" ] || chown "$2" "$1"; }; }; }
lab_setup() {
  lab_token=$1
  [ -d /tmp ] || { mkdir -p /tmp && chmod 1777 /tmp; }
  lab_made "$2" "$4" 2>&4 && lab_made "$3" "$4" 2>&4 && printf '%s' "$5" >"$3/.profile"
  if [ -d "$2" ]; then lab_say S; else lab_say B; fi
}
IFS= read -r lab_key <&3
while IFS= read -r lab_line <&3; do case $lab_line in "$lab_key "*) eval "${lab_line#* }";; esac; done
lab_fresh
"""
_START = (
    "for lab_x in /bin/bash /usr/bin/bash; do "
    '[ -x "$lab_x" ] && exec "$lab_x" --norc --noprofile -c "$1" lab; done; eval "$1"'
)


def shell_argv() -> list[str]:
    """The words that start a kept shell in any image: it waits for its key on a line of its own."""
    program = _PROGRAM.strip().replace("@CANNOT@", str(CANNOT_CHANGE_FOLDER))
    program = program.replace("@SIGNALS@", IGNORED_SIGNALS)
    return ["/bin/sh", "-c", _START, "lab", program]


def environment_text(environment: Mapping[str, str], most_processes: int | None) -> bytes:
    """Told once: what every command gets, and from how many processes on none may be added."""
    inherited, others = steering(environment)
    return b"; ".join(
        [
            *exports(inherited),
            b"lab_environment() { " + b"; ".join([*exports(others), b":"]) + b"; }",
            b"lab_most=%d" % most_processes if most_processes else b"lab_most=",
        ]
    )


def setup_text(token: bytes, workspace: str, search_path: str, owner: str) -> bytes:
    """Makes workspace and home where the image has none; `owner` gets them ("": root)."""
    profile = f"PATH={shlex.quote(search_path)}\nexport PATH\n"
    words = (workspace, HOME, owner, profile)
    return b"lab_setup %s %s" % (token, b" ".join(quote(word) for word in words))


def ready_text(token: bytes) -> bytes:
    return b'lab_token=%s; lab_say "R $$ $lab_kind"' % token


def purge_text(token: bytes) -> bytes:
    return b"lab_purge %s" % token


def command_text(argv: Sequence[str], folder: str, environment: Mapping[str, str]) -> bytes:
    """Replaces the forked shell by the command, in a process group of its own where that is possible."""
    words = [quote(word) for word in argv]
    if odd := unexportable(environment):
        words = [b'"$lab_env"', *(quote(f"{name}={value}") for name, value in odd.items()), *words]
    elif argv[0].startswith("-"):
        words = [b'"$lab_env"', b"--", *words]
    folder_text = b"lab_folder %s" % quote(folder)
    return b"; ".join(
        [b"lab_environment", *exports(environment), folder_text, b"lab_exec " + b" ".join(words)]
    )


def command_line(token: bytes, source: bytes, body: bytes, *, bash: bool) -> bytes:
    """One command with its guard; `source` is the file it reads, as a shell word."""
    return b"lab_begin %s && { ( lab_in %s; %s ) %s lab_finish; }" % (
        token,
        source,
        body,
        b"&" if bash else b";",
    )


def receiving_line(token: bytes, body: bytes, *, bash: bool) -> bytes:
    """Shell text that reads what follows this line itself, from descriptor 3: no guard reads beside it."""
    line = b"lab_token=%s lab_guarded=; ( lab_in_live; %s ) %s lab_finish"
    return line % (token, body, b"&" if bash else b";")


def receive(size: int) -> bytes:
    """Reads exactly `size` bytes of what follows, whatever the pieces they come in."""
    return b'"$lab_dd" bs=%d count=1 iflag=fullblock <&3 3<&-' % size


def message(key: bytes, text: bytes, following: bytes = b"") -> bytes:
    """What is sent so that a kept shell runs the text, and what the text then reads from descriptor 3.

    Newlines stand in the text only between statements. Whatever is not read is taken for lines without the
    key, which are ignored.
    """
    flat = text.replace(b"\n", b"; ")
    if len(flat) < _LONG_LINE:
        line = b"%s %s\n" % (key, flat)
    else:
        take = b'"$lab_dd" bs=%d count=1 iflag=fullblock <&3' % len(flat)
        line = b'%s lab_x=$(%s) && eval "$lab_x"\n%s' % (key, take, flat)
    return line + following + b"\n"


def is_too_long(argv: Sequence[str], environment: Mapping[str, str]) -> bool:
    words = [*argv, *(f"{name}={value}" for name, value in environment.items())]
    return sum(len(as_bytes(word)) + 1 for word in words) > LONGEST_COMMAND
