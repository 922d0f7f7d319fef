"""Somebody with a browser that knows no scripts: signs in by the link, sends forms, follows redirects."""

from __future__ import annotations

import functools
import http.cookiejar
import io
import re
import urllib.parse
import urllib.request
import zipfile

from pyarrow import parquet

from tests.whole_lab import WholeLab

_CSRF = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')
_RUN = re.compile(r"/runs/(\d+)/")


@functools.cache
def somebody(lab: WholeLab) -> Person:
    """The one who is signed in to this lab; a session outlives a restart."""
    return Person(lab)


def text_of(data: bytes) -> str:
    """What a page or a download says; of an archive what its members say, of a Parquet file its rows."""
    if data.startswith(b"PK\x03\x04"):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return "\n".join(
                [*archive.namelist(), *(text_of(archive.read(one)) for one in archive.namelist())]
            )
    if data.startswith(b"PAR1"):
        return str(parquet.read_table(io.BytesIO(data)).to_pylist())
    return data.decode()


class Person:
    def __init__(self, lab: WholeLab) -> None:
        self._lab = lab
        self._jar = http.cookiejar.CookieJar()
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self._jar))
        link = (
            "from lab.services.people import make_login_link\n"
            "print(json.dumps(make_login_link(base_url=arguments[0])))"
        )
        self.read(lab.program(link, lab.url).removeprefix(lab.url))

    @property
    def cookies(self) -> str:
        """The header that a browser would send."""
        return "; ".join(f"{cookie.name}={cookie.value}" for cookie in self._jar)

    def read(self, path: str) -> str:
        with self._opener.open(self._lab.url + path, timeout=60) as response:
            return text_of(response.read())

    def send(self, path: str, **fields: object) -> str:
        """Post a form with the token of the first page; returns where it led to."""
        token = _CSRF.search(self.read("/"))
        assert token
        body = urllib.parse.urlencode({"csrfmiddlewaretoken": token[1], **fields}, doseq=True).encode()
        request = urllib.request.Request(self._lab.url + path, body, {"Referer": self._lab.url + "/"})
        with self._opener.open(request, timeout=60) as response:
            return str(response.url)

    def launch(self, model: str = "scripted/solver", task: str = "parse-duration") -> int:
        """Launch one run; returns its number, which is in the address one is sent to."""
        values = {
            "tasks": self._lab.value("SELECT id FROM lab_task WHERE slug = ?", task),
            "harness_version": self._lab.value("SELECT id FROM lab_harness_version ORDER BY id LIMIT 1"),
            "models": self._lab.value("SELECT id FROM lab_model WHERE name = ?", model),
        }
        found = _RUN.search(self.send("/launch/", seeds="", **values))
        assert found
        return int(found[1])

    def cancel(self, run: int) -> None:
        self.send(f"/runs/{run}/cancel")
