"""Tokens of an OpenID provider that are renewed."""

from __future__ import annotations

import base64
import time
from pathlib import Path
from typing import Any

import pytest

from federate.cluster.connect import KubeconfigSource
from federate.errors import ConfigError
from tests.support.credentials import Authority, embed, jwt, kubeconfig
from tests.support.oidcprovider import CLIENT, OidcProvider, provider_of


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def keyed() -> OidcProvider:
    """A provider whose key the others take, since one takes long to make."""
    return OidcProvider()


def source_of(
    folder: Path, authority: Authority, provider: OidcProvider, **config: Any
) -> KubeconfigSource:
    settings = {
        "client-id": CLIENT,
        "idp-issuer-url": provider.url,
        "idp-certificate-authority-data": embed(authority.ca.pem),
        "refresh-token": "refresh-1",
        **config,
    }
    user = {"auth-provider": {"name": "oidc", "config": settings}}
    return KubeconfigSource(kubeconfig(folder, "https://10.0.0.1", user=user), None, environ={})


async def token_of(source: KubeconfigSource, *, force: bool = False) -> str:
    access, _ = await source.load(force=force)
    return dict(access.headers)["Authorization"].removeprefix("Bearer ")


async def test_a_good_token_is_used_as_it_is(
    authority: Authority, keyed: OidcProvider, tmp_path: Path
) -> None:
    """The provider is asked only when the token is over, or was refused."""
    async with provider_of(authority, tmp_path, OidcProvider(key=keyed.key)) as provider:
        good = provider.sign("jane")
        source = source_of(tmp_path, authority, provider, **{"id-token": good})
        assert await token_of(source) == good
        assert not provider.asked
        renewed = await token_of(source, force=True)
        assert renewed != good
        assert await token_of(source) == renewed
        assert len(provider.asked) == 1


@pytest.mark.parametrize(
    ("secret", "methods", "in_form", "in_header"),
    [
        ("", ["client_secret_basic"], {"client_id": CLIENT}, ""),
        ("s3cret", ["client_secret_basic"], {}, f"{CLIENT}:s3cret"),
        (
            "s3cret",
            ["client_secret_post"],
            {"client_id": CLIENT, "client_secret": "s3cret"},
            "",
        ),
    ],
)
async def test_a_token_that_is_over_is_renewed(
    authority: Authority,
    keyed: OidcProvider,
    tmp_path: Path,
    secret: str,
    methods: list[str],
    in_form: dict[str, str],
    in_header: str,
) -> None:
    """The client proves itself the way the provider wants."""
    mine = OidcProvider(key=keyed.key, methods=methods)
    async with provider_of(authority, tmp_path, mine) as provider:
        over = provider.sign("jane", exp=int(time.time()) + 5)
        config = {"id-token": over} | ({"client-secret": secret} if secret else {})
        assert await token_of(source_of(tmp_path, authority, provider, **config)) != over
        (asked,) = provider.asked
        header = asked.pop("authorization").removeprefix("Basic ")
        assert base64.b64decode(header).decode() == in_header
        assert asked == {
            "grant_type": "refresh_token",
            "refresh_token": "refresh-1",
            **in_form,
        }


async def test_a_rotated_refresh_token_is_kept(
    authority: Authority, keyed: OidcProvider, tmp_path: Path
) -> None:
    """A provider may give another refresh token each time; the file stays as it was written."""
    mine = OidcProvider(key=keyed.key, rotates=True)
    async with provider_of(authority, tmp_path, mine) as provider:
        source = source_of(tmp_path, authority, provider)
        before = (tmp_path / "kubeconfig").read_text()
        tokens = {await token_of(source, force=True) for _ in range(3)}
        assert len(tokens) == 3
        assert (tmp_path / "kubeconfig").read_text() == before


async def test_a_provider_nobody_vouches_for(
    authority: Authority, keyed: OidcProvider, tmp_path: Path
) -> None:
    """A refresh token goes only to a server whose certificate is trusted."""
    async with provider_of(authority, tmp_path, OidcProvider(key=keyed.key)) as provider:
        for trust in ({"idp-certificate-authority-data": embed(Authority().ca.pem)}, NO_TRUST):
            source = source_of(tmp_path, authority, provider, **trust)
            with pytest.raises(ConfigError, match="did not answer as expected"):
                await source.load(force=False)
        assert not provider.asked


async def test_a_provider_that_wants_tokens_in_the_clear(
    authority: Authority, keyed: OidcProvider, tmp_path: Path
) -> None:
    """A refresh token is sent over TLS only, whatever the provider says."""
    mine = OidcProvider(key=keyed.key, endpoint="http://127.0.0.1:1/token")
    async with provider_of(authority, tmp_path, mine) as provider:
        with pytest.raises(ConfigError, match="no https:// token_endpoint"):
            await source_of(tmp_path, authority, provider).load(force=False)


NO_TRUST = {"idp-certificate-authority-data": ""}


@pytest.mark.parametrize(
    ("config", "answer", "said"),
    [
        ({"refresh-token": ""}, None, "the id-token is missing or over"),
        ({"refresh-token": "", "id-token": jwt(exp=1000)}, None, "the id-token is missing or over"),
        ({"idp-issuer-url": "http://provider"}, None, "expected client-id and an https://"),
        ({"client-id": ""}, None, "expected client-id and an https://"),
        ({"idp-issuer-url": "https://127.0.0.1:1"}, None, "did not answer as expected"),
        ({"idp-certificate-authority-data": "§"}, None, "expected base64"),
        ({"refresh-token": "other"}, None, "refused to renew the token"),
        ({}, {"error": "secret-word", "error_description": "refresh-1"}, "refused to renew"),
    ],
)
async def test_what_goes_wrong(
    authority: Authority,
    keyed: OidcProvider,
    tmp_path: Path,
    config: dict[str, Any],
    answer: dict[str, Any] | None,
    said: str,
) -> None:
    """It is told without a word of what the provider or the kubeconfig says."""
    mine = OidcProvider(key=keyed.key, answer=answer)
    async with provider_of(authority, tmp_path, mine) as provider:
        source = source_of(tmp_path, authority, provider, **config)
        with pytest.raises(ConfigError, match=said) as caught:
            await source.load(force=False)
    assert not any(word in str(caught.value) for word in ("secret-word", "refresh-1", "e30"))
