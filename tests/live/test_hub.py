"""The queue of each viewer: bounded, nobody awaits it, and what was dropped is said."""

from __future__ import annotations

import asyncio

from lab.live.hub import QUEUE_BYTES, Hub, Message, Topic, Viewer

TOPIC = Topic("run", 1)


async def test_messages_come_in_the_order_in_which_they_were_published() -> None:
    hub = Hub(on_first=lambda: None)
    viewer = Viewer(asyncio.get_running_loop())
    hub.join(TOPIC, viewer, position=0)
    sent = [Message(number, number + 1, str(number)) for number in range(100)]
    await asyncio.to_thread(hub.publish, TOPIC, sent)
    assert [await viewer.next() for _ in range(100)] == sent


async def test_a_stalled_viewer_costs_a_megabyte_at_most_and_is_told_once() -> None:
    viewer = Viewer(asyncio.get_running_loop())
    for number in range(100):
        viewer.put(Message(number, number + 1, "x" * 100_000))
        assert viewer.held_bytes <= QUEUE_BYTES
    assert await viewer.next() is None
    fresh = Message(100, 101, "fresh")
    viewer.put(fresh)
    assert await viewer.next() == fresh


async def test_a_stalled_viewer_takes_nothing_from_the_others() -> None:
    hub = Hub(on_first=lambda: None)
    stalled, healthy = (Viewer(asyncio.get_running_loop()) for _ in range(2))
    for viewer in (stalled, healthy):
        hub.join(TOPIC, viewer, position=0)
    for number in range(50):
        hub.publish(TOPIC, [Message(number, number + 1, "x" * 50_000)])
        message = await healthy.next()
        assert message is not None
        assert message.seq == number + 1


async def test_a_topic_is_watched_while_it_has_viewers() -> None:
    hub = Hub(on_first=lambda: None)
    first, second = (Viewer(asyncio.get_running_loop()) for _ in range(2))
    hub.join(TOPIC, first, position=7)
    hub.join(TOPIC, second, position=9)
    assert hub.topics() == {TOPIC: 7}
    hub.leave(TOPIC, first)
    assert hub.viewers(TOPIC) == 1
    hub.leave(TOPIC, second)
    hub.leave(TOPIC, second)
    assert hub.topics() == {}


async def test_a_waiting_viewer_wakes_for_what_another_thread_publishes() -> None:
    hub = Hub(on_first=lambda: None)
    viewer = Viewer(asyncio.get_running_loop())
    hub.join(TOPIC, viewer, position=0)
    waiting = asyncio.create_task(viewer.next())
    await asyncio.sleep(0)
    message = Message(0, 1, "now")
    await asyncio.to_thread(hub.publish, TOPIC, [message])
    assert await asyncio.wait_for(waiting, 60) == message
