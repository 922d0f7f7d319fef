"""Output in bounded memory: whatever the chunks, head, tail, size and hash are those of the whole."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from lab.engine.sandboxes.base import OUTPUT_TAIL_BYTES
from lab.engine.sandboxes.output import OutputCollector


@given(st.lists(st.binary(max_size=200), max_size=20), st.integers(0, 300))
def test_chunks_do_not_matter(chunks: list[bytes], limit: int) -> None:
    collector = OutputCollector(limit)
    for chunk in chunks:
        collector.feed(chunk)
    whole, output = b"".join(chunks), collector.result()
    assert output.head == whole[:limit]
    assert output.tail == whole[limit:][-OUTPUT_TAIL_BYTES:]
    assert output.total == len(whole)
    assert output.sha256 == hashlib.sha256(whole).hexdigest()
    assert output.truncated == (len(whole) > limit)


def test_the_tail_is_a_ring_of_the_last_bytes() -> None:
    collector = OutputCollector(10)
    for number in range(100_000):
        collector.feed(b"%9d\n" % number)
    output = collector.result()
    whole = b"".join(b"%9d\n" % number for number in range(100_000))
    assert (output.head, output.tail) == (whole[:10], whole[-OUTPUT_TAIL_BYTES:])
    assert f"[{len(whole) - 10 - OUTPUT_TAIL_BYTES} bytes of output were dropped here]" in output.text()
