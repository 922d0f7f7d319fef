"""Harness templates: what they can say, what they refuse, and that no text makes them run on or escape."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import jinja2
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lab.engine.errors import InvalidValueError
from lab.engine.harnesses.templates import check, placeholders, render

VARIABLES: dict[str, object] = {
    "task": "Fix the <parser> & 'tests'",
    "text": "a" * 100_000,
    "lines": "one\ntwo\nthree\n",
    "output": {"text": "ok\n", "exit_code": 0, "exception": "", "keys": "a key", "seconds": 1.25},
    "names": ["bash", "Edit", "glob"],
    "tools": [{"name": "bash", "cost": 3}, {"name": "edit", "cost": 1}],
    "number": 5,
    "nothing": None,
    "yes": True,
}
HUGE = "b" * 3_000_000


def refusal(template: str, variables: Mapping[str, object] = VARIABLES) -> InvalidValueError:
    """The refusal of a template, which must come within seconds."""
    began = time.monotonic()
    with pytest.raises(InvalidValueError) as caught:
        render("task_prompt", template, variables)
    assert time.monotonic() - began < 60
    assert caught.value.field == "task_prompt"
    assert len(str(caught.value)) < 3_000
    return caught.value


class TestWhatTemplatesCanSay:
    @pytest.mark.parametrize(
        "template",
        [
            "plain text, with a newline at its end\n",
            "{{ task }} {{ number }} {{ nothing }} {{ yes }} {{ names }} {{ output }}",
            "{{ output.text }}{{ output['exit_code'] }}{{ names[0] }}{{ names[-1] }}{{ task[0] }}",
            "{% if output.exception -%}<e>{{ output.exception }}</e>{% endif -%}"
            "<r>{{ output.exit_code }}</r>",
            "{% if text | length < 10000 -%}{{ text }}{%- else -%}"
            "{{ text[:50] }}…{{ text[-50:] }}{%- endif %}",
            "{%- set gone = text | length - 10000 -%}{{ gone }} characters elided",
            "{"
            '"out": {{ task | tojson }}, "all": {{ output | tojson }}, "in": {{ tools | tojson(indent=2) }}}',
            "{% if reason is defined and reason in ['length', 'tool_calls'] %}cut{% else %}whole{% endif %}",
            "{% if number == 5 and not (number > 6 or nothing) %}{{ 'x' if yes else 'y' }}{% endif %}",
            "{{ ((3600 - 100.5) / 60) | int }} {{ 7 // 2 }} {{ 7 % 3 }} {{ 2 ** 10 }} {{ -number }}",
            "{% for name in names %}{{ loop.index }}/{{ loop.length }} {{ name }}"
            "{% if not loop.last %}, {% endif %}{{ loop.cycle('a', 'b') }}{% else %}none{% endfor %}",
            "{% for key, value in output.items() if value %}{{ key }}={{ value }};{% endfor %}",
            "{% for tool in tools | sort(attribute='cost') %}{{ tool.name }}{{ tool.cost }}{% endfor %}",
            "{{ tools | map(attribute='name') | join(', ') }} {{ names | map('upper') | list }}",
            "{{ names | select('in', ['bash']) | list }} {{ tools | selectattr('cost', 'gt', 2) | list }}",
            "{{ names | reject('eq', 'bash') | list }} {{ tools | rejectattr('x', 'defined') | list }}",
            "{{ names | sort }} {{ names | first }} {{ names | last }} {{ names | unique | list }}",
            "{{ names | reverse | list }} {{ task | reverse }} {{ [3, 1] | min }} {{ [3, 1] | max }}",
            "{{ tools | sum(attribute='cost') }} {{ 2.567 | round(2) }} {{ 2.5 | round(0, 'floor') }}"
            " {{ -3 | abs }}",
            "{{ task | upper }} {{ task | lower }} {{ task | title }} {{ task | capitalize }}"
            " {{ ' x ' | trim }}",
            "{{ task | replace('tests', 'code') }} {{ 'aaa' | replace('a', 'b', 2) }} {{ task | wordcount }}",
            "{{ lines | indent }}|{{ lines | indent(2, true) }}"
            "|{{ lines | indent('> ', first=true, blank=true) }}",
            "{{ text | truncate(20) }} {{ task | e }} {{ task | escape }} {{ output | dictsort }}"
            " {{ '3' | float }}",
            "{{ missing | default('none') }} {{ output.missing | d('none') }}"
            " {{ [] | first | default('none') }}",
            "{{ lines.splitlines() }} {{ task.split(' ', 1) }} {{ '-'.join(names) }}"
            " {{ task.startswith('Fix') }}",
            "{{ task.replace('Fix', 'Mend') }} {{ ' x '.strip() }} {{ 'xay'.strip('xy') }}"
            " {{ names.index('Edit') }}",
            "{{ output.get('text') }} {{ output.get('other', 'none') }} {{ output['keys'] }}"
            " {{ names.count('bash') }}",
            "{{ 'a' ~ number ~ names }} {{ 'a' + 'b' }} {{ [1] + [2] }} {{ '-' * 20 }} {{ [0] * 3 }}",
            "{% set block %}x{{ number }}{% endset %}{{ block }}{% filter upper %}{{ task }}{% endfilter %}",
            "{% with a = 1, b = number %}{{ a + b }}{% endwith %}{# said to nobody #}{% raw %}"
            "{{ raw }}{% endraw %}",
            "{% for i in range(3) %}{% for j in range(1, 10, 4) %}{{ i }}{{ j }} {% endfor %}{% endfor %}",
            "{{ nothing is none }} {{ task is string }} {{ output is mapping }} {{ number is odd }}"
            " {{ 9 is divisibleby 3 }}",
            "{{ 1 < number <= 5 }} {{ 'Fix' in task }} {{ 'x' not in names }} {{ (1, 2) == (1, 2) }}"
            " {{ {'a': number} }}",
            "{{ text[::1000] | length }} {{ names[1:] }} {{ range(10)[2:4] | list }}",
            "a\r\nb {{ task }}\r\n",
        ],
    )
    def test_what_a_prompt_needs_is_written_as_jinja_itself_writes_it(self, template: str) -> None:
        jinja = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)  # noqa: S701
        assert render("task_prompt", template, VARIABLES) == jinja.from_string(template).render(VARIABLES)

    def test_nothing_is_escaped_and_the_last_newline_stays(self) -> None:
        assert render("task_prompt", "{{ task }}\n", {"task": "<b>&\n"}) == "<b>&\n\n"

    def test_a_text_from_outside_is_no_template(self) -> None:
        assert render("task_prompt", "{{ task }}", {"task": "{{ 9 }}{% for %}"}) == "{{ 9 }}{% for %}"

    def test_a_text_longer_than_any_template_makes_can_be_measured_searched_and_cut(self) -> None:
        template = (
            "{{ text | length }} {{ 'c' in text }} {{ text[:3] }} {{ text.count('b') }} {{ text | last }}"
        )
        assert render("task_prompt", template, {"text": HUGE}) == "3000000 False bbb 3000000 b"

    def test_a_large_text_can_be_worked_on_as_a_whole(self) -> None:
        text = "one <b>\n" * 200_000
        assert render("x", "{{ text | upper }}", {"text": text}) == text.upper()
        assert render("x", "{{ text | truncate(20, true) }}", {"text": text}) == text[:17] + "..."
        assert render("x", "{{ text.replace('one', 'two') | trim }}", {"text": text}) == (
            text.replace("one", "two").strip()
        )
        assert len(render("x", "{{ text[:400000] | tojson }}", {"text": text})) > 400_000

    def test_a_template_cannot_change_its_variables(self) -> None:
        before = json.dumps(VARIABLES)
        for call in ("names.append(1)", "names.sort()", "output.pop('text')", "output.update({'a': 1})"):
            assert "which is not in a" in refusal("{{ " + call + " }}").reason
        assert json.dumps(VARIABLES) == before

    def test_many_threads_render_one_template(self) -> None:
        template = "{% for i in range(200) %}{{ i }}{{ name }},{% endfor %}"
        with ThreadPoolExecutor(8) as pool:
            texts = list(pool.map(lambda name: render("x", template, {"name": name}), map(str, range(40))))
        for number, text in enumerate(texts):
            assert text == "".join(f"{i}{number}," for i in range(200))


class TestWhatIsWrongIsNamed:
    @pytest.mark.parametrize(
        ("template", "told"),
        [
            ("\n{{ tsk }}", ["'{{ tsk }}'", "unknown name 'tsk'", "names, nothing, number", "line 2"]),
            ("{{ output.txt }}", ["asks for 'txt', which is not in a mapping that has text, exit_code"]),
            ("{{ output.txt.more }}", ["asks for 'txt', which is not in a mapping that has text, exit_code"]),
            ("{{ names[7] }}", ["asks for 7, which is not in a list that has 3 items"]),
            ("{{ task.nothing }}", ["asks for 'nothing', which is not in a text"]),
            ("{{ task | shout }}", ["unknown filter 'shout'", "tojson, trim"]),
            ("{% if task is loud %}{% endif %}", ["unknown test 'loud'", "sequence, string"]),
            ("{% if task %}", ["is no template", "endif"]),
            ("a\n{{ task", ["is no template", "line 2"]),
            ("{{ 1 / 0 }}", ["division by zero", "line 1"]),
            ("{{ 'a' + 1 }}", ["between text and int", "`~`"]),
            ("{{ number | length }}", ["cannot be rendered", "len()"]),
            ("{% for x in number %}{% endfor %}", ["loops over a value (int)"]),
            ("{{ task.upper }}", ["call it with ()"]),
            ("{{ task() }}", ["calls something that is no function"]),
            ("{% include 'x' %}", ["uses 'include'", "leave it out"]),
            ("{{ '\\ud800' }}", ["surrogate"]),
            ("x" * 5_000_000, ["5,000,000 characters", "at most 200,000", "shorten"]),
        ],
    )
    def test_a_refusal_says_where_what_and_the_way_out(self, template: str, told: list[str]) -> None:
        message = str(refusal(template))
        for part in ("task_prompt", *told):
            assert part in message

    def test_a_template_without_any_variable_says_so(self) -> None:
        assert "there are no names here" in refusal("{{ task }}", {}).reason


ENDLESS = {
    "nested loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}x"
    + "{% endfor %}" * 3,
    "loops that write nothing": "{% for a in range(99999) %}{% for b in range(99999) %}"
    "{% endfor %}{% endfor %}",
    "a loop of many parts": "{% for a in range(99999) %}"
    + "{% if yes and yes %}{% endif %}" * 2000
    + "{% endfor %}",
    "a loop in a set block": "{% set x %}{% for a in range(99999) %}"
    + "y" * 999
    + "{% endfor %}{% endset %}",
    "a loop in a filter block": "{% filter upper %}{% for a in range(99999) %}"
    + "y" * 999
    + "{% endfor %}{% endfilter %}",
    "loops that compare": "{% for i in range(9999) %}{% if text ~ 'b' in huge %}{% endif %}{% endfor %}",
    "loops that cut": "{% for i in range(9999) %}{% set a = huge[i : 1000000 + i] %}{% endfor %}",
    "loops that call": "{% for i in range(9999) %}{% set a = text.upper() %}{% endfor %}",
    "a huge range": "{{ range(10 ** 12) | list }}",
    "a loop over a huge range": "{% for i in range(10 ** 30) %}{% endfor %}",
    "a recursive loop": "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "a loop called": "{% for x in names %}{{ loop(names) }}{% endfor %}",
}
BOMBS = {
    "a tower of powers": "{{ 9 ** (9 ** 9) }}",
    "a power of a power": "{{ (9 ** 999) ** 99 }}",
    "a negative power": "{{ 9 ** -(9 ** 9) }}",
    "a text multiplied": "{{ 'a' * 10 ** 9 }}",
    "a multiplied text": "{{ 10 ** 9 * 'a' }}",
    "a list multiplied": "{{ [1] * 10 ** 9 }}",
    "a text doubled by ~": "{% set a = text %}" + "{% set a = a ~ a %}" * 60 + "{{ a }}",
    "a text doubled by +": "{% set a = text %}" + "{% set a = a + a %}" * 60 + "{{ a }}",
    "a list doubled": "{% set a = [1] %}" + "{% set a = a + a %}" * 60 + "{{ a | length }}",
    "a list of itself twice": "{% set a = [1, number] %}" + "{% set a = [a, a] %}" * 60 + "{{ a }}",
    "a mapping of itself": "{% set a = {'a': 1} %}"
    + "{% set a = {'a': a, 'b': a} %}" * 60
    + "{{ a | tojson }}",
    "lists compared": "{% set a = [1, number] %}"
    + "{% set a = [a, a] %}" * 14
    + "{% if a == a %}{% endif %}" * 1000,
    "many copies kept": "".join(f"{{% set a{i} = text[1:] ~ {i} %}}" for i in range(900)),
    "more than may be written": "{{ text }}" * 30,
    "a huge variable": "{{ huge }}",
    "replace between all characters": "{{ text | replace('', '" + "b" * 30 + "') }}",
    "replace by a long text": "{{ text.replace('a', text) }}",
    "join with a long text": "{{ range(99999) | join(text) }}",
    "join of a text": "{{ text.join(text) }}",
    "indent by much": "{{ lines | indent(10 ** 9) }}",
    "indent by a long text": "{{ lines | indent(text) }}",
    "json indented by much": "{{ names | tojson(indent=10 ** 9) }}",
    "round to many decimals": "{{ 1.5 | round(10 ** 9, 'ceil') }}",
    "a text rounded": "{{ 'abc' | round(9, 'ceil') }}",
    "strip of many characters": "{{ text.strip(text) }}",
    "trim of many characters": "{{ text | trim(text) }}",
    "a long number": "{{ " + "9" * 9999 + " }}",
    "a long hexadecimal number": "{{ 0x" + "f" * 99_999 + " }}",
    "a number from a long text": "{{ text | int(0, 16) }}",
    "infinity": "{{ 1e999 }}",
    **{f"text.{name}": f"{{{{ task.{name}(10 ** 9) }}}}" for name in ("center", "ljust", "rjust", "zfill")},
    "text.expandtabs": "{{ '\t'.expandtabs(10 ** 9) }}",
    **{
        f"the filter {name}": f"{{{{ task | {name}(10 ** 9) }}}}"
        for name in ("center", "wordwrap", "batch", "slice")
    },
    "a width in %": "{{ '%1000000000d' % 1 }}",
    "a width in format": "{{ '{:1000000000d}'.format(1) }}",
    "a width in the filter format": "{{ '%1000000000d' | format(1) }}",
    "% hidden in a test": "{{ '%1000000000d' is even }}",
    "sum of texts": "{{ names | sum(start='') }}",
}
NESTED = {
    "parentheses": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "lists": "{{ " + "[" * 5000 + "]" * 5000 + " }}",
    "not": "{{ " + "not " * 5000 + "1 }}",
    "minus": "{{ " + "-" * 5000 + "1 }}",
    "conditions": "{{ " + "1 if 1 else " * 5000 + "1 }}",
    "sums": "{{ " + "1+" * 5000 + "1 }}",
    "attributes": "{{ output" + ".a" * 5000 + " }}",
    "filters": "{{ task" + "|upper" * 5000 + " }}",
    "ifs": "{% if 1 %}" * 500 + "{% endif %}" * 500,
    "ifs without an end": "{% if 1 %}" * 5000,
    "fors": "{% for a in [1] %}" * 30 + "{% endfor %}" * 30,
    "deep lists": "{% set a = [number] %}" + "{% set a = [a] %}" * 1500 + "{{ a }}",
    "deep json": "{% set a = [number] %}" + "{% set a = [a] %}" * 1500 + "{{ a | tojson }}",
    "many parts": "{{ task }}" * 20_000,
    "many branches": "{% if number == 1 %}" + "{% elif number == 2 %}" * 9000 + "{% endif %}",
    "comments": "{#" * 50_000,
}
ESCAPES = {
    "a class": "{{ ''.__class__.__mro__ }}",
    "a class as an item": "{{ ''['__class__'] }}",
    "a class through attr": "{{ '' | attr('__class__') }}",
    "a class through map": "{{ [''] | map(attribute='__class__') | list }}",
    "a class through sort": "{{ ['', ''] | sort(attribute='__class__') }}",
    "a class through map of attr": "{{ [''] | map('attr', '__class__') | list }}",
    "a class through format": "{{ '{0.__class__}'.format(1) }}",
    "a class through format_map": "{{ '{a.__class__}'.format_map({'a': 1}) }}",
    "the globals of a function": "{{ range.__globals__ }}",
    "a function": "{{ range }}",
    "a method in a list": "{{ [task.upper] }}",
    "a hidden filter through map": "{{ [''] | map('~loop', 1) | list }}",
    "self": "{{ self }}",
    "what is in self": "{{ self._TemplateReference__context }}",
    "the loop": "{% for x in names %}{{ loop }}{% endfor %}",
    "the loop's iterator": "{% for x in names %}{{ loop._iterator }}{% endfor %}",
    "the loop as a list": "{% for x in names %}{{ loop | first }}{% endfor %}",
    "a loop over the loop": "{% for x in names %}{% for y in loop %}{% endfor %}{% endfor %}",
    "cycler": "{{ cycler(1, 2) }}",
    "joiner": "{{ joiner() }}",
    "lipsum": "{{ lipsum(n=99999) }}",
    "dict": "{{ dict(a=1) }}",
    "namespace": "{% set space = namespace(a=1) %}{% set space.a = 2 %}",
    "an object": "{{ thing.secret }}",
    "an object as text": "{{ thing }}",
    "a call of a variable": "{{ call() }}",
    "a method of a number": "{{ number.to_bytes(10 ** 9) }}",
    "autoescape": "{% autoescape true %}{% endautoescape %}",
    "import": "{% import 'x' as x %}",
    "from": "{% from 'x' import y %}",
    "extends": "{% extends 'x' %}",
    "block": "{% block a %}{% endblock %}",
    "macro": "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}",
    "call": "{% call x() %}{% endcall %}",
    "arguments passed on": "{{ range(*[1, 2]) }}",
    "keywords passed on": "{{ task.split(**{}) }}",
    "keywords of the compiler": "{% for x in names %}{{ task.upper(_loop_vars=1) }}{% endfor %}",
}


class _Thing:
    secret = "told"

    def __str__(self) -> str:
        return "told"


class TestAttacks:
    @pytest.mark.parametrize("name", ENDLESS)
    def test_what_would_not_end_is_refused(self, name: str) -> None:
        refusal(ENDLESS[name], {**VARIABLES, "huge": HUGE})

    @pytest.mark.parametrize("name", BOMBS)
    def test_what_would_fill_the_memory_is_refused(self, name: str) -> None:
        refusal(BOMBS[name], {**VARIABLES, "huge": HUGE})

    @pytest.mark.parametrize("name", NESTED)
    def test_what_is_nested_too_deep_is_refused(self, name: str) -> None:
        refusal(NESTED[name])

    @pytest.mark.parametrize("name", ESCAPES)
    def test_what_reaches_out_of_the_sandbox_is_refused(self, name: str) -> None:
        message = str(refusal(ESCAPES[name], {**VARIABLES, "thing": _Thing(), "call": lambda: "told"}))
        assert "told" not in message
        assert " at 0x" not in message

    def test_time_is_a_limit_of_its_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = iter(range(0, 1_000_000, 2))
        monkeypatch.setattr("lab.engine.harnesses.template_work.time.monotonic", lambda: next(clock))
        assert "takes too much work" in refusal("{{ number }}" * 20).reason

    def test_a_refused_template_does_not_spoil_the_next_one(self) -> None:
        refusal(ENDLESS["nested loops"])
        assert render("task_prompt", "{{ number }}", VARIABLES) == "5"

    def test_what_is_allowed_is_allowed_deep_in_a_program_too(self) -> None:
        template = "{% if yes %}" * 57 + "{{ (((((((((number))))))))) }}" + "{% endif %}" * 57

        def deep(levels: int) -> str:
            return deep(levels - 1) if levels else render("task_prompt", template, VARIABLES)

        assert deep(250) == "5"


_VOCABULARY = """
    {{ }} {% %} {{- -}} {%- -%} {# #} ( ) [ ] { } , . : | ~ + - * ** / // % == < in not and or is if else elif
    endif for endfor set endset with endwith filter endfilter raw endraw recursive range loop task text names
    output number a b 0 1 9 99999 'x' '' "%99999d" upper join replace indent tojson map select sort int round
    first length default defined string trim attribute= .text .split .items() .__class__ .strip index self _ =
    None
"""
_WORDS = st.sampled_from(_VOCABULARY.split())


def told(judge: Callable[[str, str, Mapping[str, object]], str | None], template: str) -> str:
    """The text, or the reason of the refusal: anything else is raised."""
    try:
        return judge("task_prompt", template, VARIABLES) or "nothing"
    except InvalidValueError as error:
        return error.reason


class TestAnyText:
    # Compiling the odd long one takes its time on a busy machine.
    @settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.one_of(st.text(), st.lists(_WORDS, max_size=40).map(" ".join), st.lists(_WORDS).map("".join)))
    @example("{{ names | map('~slice', 1, 2, 3) | list }}")
    @example("{{ text[output:names] }}{{ {} [ [] ] }}{{ {names: 1} }}")
    @example("{{\x00}}\x00{{ '\x00' }}")
    def test_any_text_renders_or_is_refused_in_words(self, template: str) -> None:
        began = time.monotonic()
        assert told(render, template)
        assert time.monotonic() - began < 60

    @settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(_WORDS, max_size=12).map(" ".join))
    def test_any_expression_renders_or_is_refused_in_words(self, expression: str) -> None:
        for template in ("{{ " + expression + " }}", "{% set x = " + expression + " %}{{ x }}"):
            assert told(render, template)
            assert told(check, template)


class TestCheck:
    @pytest.mark.parametrize(
        "template",
        [
            "{{ task }} {{ output.text }} {{ output['exit_code'] }} {{ output.items() }}"
            " {{ names[0].x | d('') }}",
            "{% if reason is defined and reason == 'length' %}{{ reason.more }}{% endif %}",
            "{% if output.other is defined %}{{ output.other }}{{ output.other.deeper }}{% endif %}",
            "{{ other | default('none') }}",
            "{% if yes %}{{ task }}{% else %}{% set gone = 1 %}{{ gone }}{% endif %}",
            "{% for name in names if name %}{{ loop.index }}{{ name.upper() }}{% endfor %}",
            "{% for key, value in output.items() %}{{ key }}{{ value }}{% endfor %}",
            "{% with a = 1 %}{{ a }}{% endwith %}{% set b %}{{ task }}{% endset %}{{ b }}",
            "{% if nothing %}{{ nothing.whatever }}{% endif %}{{ range(3) | list }}",
            "{% filter upper %}{{ task }}{% endfilter %}",
        ],
    )
    def test_what_asks_only_for_what_there_is_passes(self, template: str) -> None:
        check("task_prompt", template, VARIABLES)

    @pytest.mark.parametrize(
        ("template", "told"),
        [
            ("{% if not yes %}\n{{ tsk }}{% endif %}", ["'tsk'", "names, nothing", "line 2"]),
            (
                "{% if not yes %}{{ output.txt }}{% endif %}",
                ["asks for 'output.txt', but 'output' is a mapping that has text, exit_code"],
            ),
            (
                "{% if not yes %}{{ output['txt'].x }}{% endif %}",
                ["asks for 'output.txt', but 'output' is a mapping that has text, exit_code"],
            ),
            (
                "{% if not yes %}{{ task.nothing }}{% endif %}",
                ["asks for 'task.nothing', but 'task' is a text"],
            ),
            ("{% if not yes %}{{ task | shout }}{% endif %}", ["'shout'"]),
            ("{% for name in [] %}{{ nme }}{% endfor %}", ["'nme'"]),
            ("{% if not yes %}{% for name in names %}{% endfor %}{{ name }}{% endif %}", ["'name'"]),
            ("{% if not yes %}{{ loop.index }}{% endif %}", ["'loop'"]),
            ("{% if not yes %}{% with a = b %}{% endwith %}{% endif %}", ["'b'"]),
            ("{% if not yes %}{% set a = a %}{% endif %}", ["'a'"]),
            ("{% if not yes %}{% filter replace('a', b) %}{% endfilter %}{% endif %}", ["'b'"]),
            ("{{ number / 0 }}", ["division by zero"]),
            (
                "{% for x in range(99999) %}{% for y in range(99999) %}{% endfor %}{% endfor %}",
                ["too much work"],
            ),
            ("{% if %}", ["is no template"]),
            ("x" * 5_000_000, ["5,000,000 characters"]),
        ],
    )
    def test_what_is_wrong_is_found_in_every_branch(self, template: str, told: list[str]) -> None:
        with pytest.raises(InvalidValueError) as caught:
            check("feedback.no_call", template, VARIABLES)
        for part in ("feedback.no_call", *told):
            assert part in str(caught.value)


class TestPlaceholders:
    def test_they_are_the_names_asked_for_from_outside(self) -> None:
        template = (
            "{{ task.statement }}{% for x in xs %}{{ x.y }}{{ loop.index }}{{ z }}{% endfor %}"
            "{% set own = 1 %}{{ own }}{% if a is defined %}{{ b | default(c) }}{% endif %}{{ range(3) }}"
        )
        assert placeholders(template) == {"task", "xs", "z", "a", "b", "c"}

    def test_plain_text_asks_for_none(self) -> None:
        assert placeholders("Fix it.") == set()

    def test_what_is_no_template_is_refused(self) -> None:
        with pytest.raises(InvalidValueError, match="is no template"):
            placeholders("{{ ")
