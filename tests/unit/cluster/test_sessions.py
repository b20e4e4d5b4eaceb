"""Pools of connections: when they are replaced, and that nothing in flight is cut."""

from __future__ import annotations

import ssl

from federate.cluster.proxies import parse_proxy
from federate.cluster.sessions import Access, Purpose, SessionPools, to_conceal


class Bench:
    def __init__(self) -> None:
        self.now = 0.0
        self.pools = SessionPools(max_age_seconds=600.0, clock=lambda: self.now, jitter=lambda: 0.5)


async def test_a_young_pool_is_shared() -> None:
    """Requests share connections."""
    b = Bench()
    access = Access(server="http://x")
    async with b.pools.lend(access) as first, b.pools.lend(access) as second:
        assert first is second
    b.now = 659.0
    async with b.pools.lend(access) as third:
        assert third is first
    await b.pools.aclose()
    assert first.closed


async def test_an_old_pool_is_replaced() -> None:
    """New requests get fresh connections after a while; idle old ones are closed at once."""
    b = Bench()
    access = Access(server="http://x")
    async with b.pools.lend(access) as first:
        pass
    b.now = 660.0
    async with b.pools.lend(access) as second:
        assert second is not first
        assert first.closed
    await b.pools.aclose()


async def test_a_replaced_pool_lives_until_its_last_user_is_done() -> None:
    """A watch on an old connection is not cut."""
    b = Bench()
    access = Access(server="http://x")
    async with b.pools.lend(access) as watch:
        b.now = 660.0
        async with b.pools.lend(access) as request:
            assert request is not watch
            async with b.pools.lend(access) as another:
                assert another is request
        before = [watch.closed, request.closed]
    assert before == [False, False]
    assert [watch.closed, request.closed] == [True, False]
    await b.pools.aclose()


async def test_another_identity_gets_other_connections() -> None:
    """After a change of certificates no request travels under the old ones."""
    b = Bench()
    tls = ssl.create_default_context()
    async with b.pools.lend(Access(server="https://x", tls=tls)) as first:
        pass
    async with b.pools.lend(Access(server="https://x", tls=tls, headers=(("A", "b"),))) as same:
        assert same is first
    async with b.pools.lend(Access(server="https://x", tls=ssl.create_default_context())) as other:
        assert other is not first
    await b.pools.aclose()


def test_secrets_are_not_printed() -> None:
    """A token never shows in a log of an access."""
    proxy = parse_proxy("http://u:secret@p:3128")
    headers = (("Authorization", "Bearer secret"),)
    concealed = to_conceal(headers, proxy)
    access = Access(server="x", headers=headers, proxy=proxy, concealed=concealed)
    assert "secret" not in repr(access) + repr(proxy)


async def test_watches_have_a_pool_of_their_own() -> None:
    """One that grows old or is retired does not touch the other."""
    b = Bench()
    access = Access(server="http://x")
    async with b.pools.lend(access, Purpose.WATCHES) as watch, b.pools.lend(access) as request:
        assert watch is not request
        async with b.pools.lend(access, Purpose.WATCHES) as another:
            assert another is watch
    assert not watch.closed
    await b.pools.aclose()
    assert watch.closed
