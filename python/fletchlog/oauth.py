"""Tokens for OAUTHBEARER from an OAuth 2 token endpoint."""

from __future__ import annotations

import base64
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS = 10
"""How long the endpoint may take."""


def client_credentials(url: str, client_id: str, secret: str, scope: str | None) -> Callable[[str], tuple[str, float]]:
    """A function that asks for a token with the grant `client_credentials` (Kafka: `HttpAccessTokenRetriever`).

    The function raises `RuntimeError` with what the endpoint says, and never with the secret.
    """
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in {"http", "https"}:
        raise ValueError("sasl.oauthbearer.token.endpoint.url begins with https:// or http://")

    def token(_config: str) -> tuple[str, float]:
        form = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
        credentials = base64.b64encode(f"{client_id}:{secret}".encode()).decode()
        headers = {"Authorization": f"Basic {credentials}", "Accept": "application/json"}
        request = urllib.request.Request(url, urllib.parse.urlencode(form).encode(), headers)  # noqa: S310 - the scheme was checked
        asked = time.time()
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as response:  # noqa: S310 - the scheme was checked
                answer = json.load(response)
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{parts.netloc} refuses a token: HTTP {error.code} {error.reason}") from None
        except (OSError, ValueError) as error:
            raise RuntimeError(f"{parts.netloc} gives no token: {error}") from None
        given = answer.get("access_token") if isinstance(answer, dict) else None
        if not given:
            raise RuntimeError(f"{parts.netloc} gives no access_token")
        return str(given), asked + float(answer.get("expires_in", 3600))

    return token
