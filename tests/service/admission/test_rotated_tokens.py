"""A tokens file in a mounted Secret, which a kubelet swaps as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import generate_latest

from service.base.watched_file import SETTLE_MS
from service.process.admin import make_registry
from tests.support.http_app import HttpApp
from tests.support.secured_settings import MountedSecret
from tests.support.tokens import TokensFile

if TYPE_CHECKING:
    from pathlib import Path

ORDERS = {"read": ["orders"]}


def test_tokens_that_a_kubelet_swaps_are_in_force_and_wrong_ones_are_not(tmp_path: Path) -> None:
    tokens = TokensFile(tmp_path, shop=ORDERS)
    before, after = tokens.entry("shop", **ORDERS), tokens.entry("audit", **ORDERS)
    mounted = MountedSecret(tmp_path / "mounted", {"tokens.toml": before})
    web = HttpApp(tokens_file=str(mounted.path("tokens.toml")))
    web.producer.set_topics({"orders": 3})
    access = web.app.access
    assert access is not None

    def statuses() -> list[int]:
        """What shop and audit get."""
        return [
            web.get("/v1/topics/orders", headers=tokens.of(name)).status_code for name in ("shop", "audit")
        ]

    def swap(text: str, now_ms: int) -> None:
        mounted.swap({"tokens.toml": text})
        access.look(now_ms)
        access.look(now_ms + SETTLE_MS)

    assert statuses() == [200, 401]
    swap(after, 0)
    assert statuses() == [401, 200]
    swap("[[token]]\nname = 'half'", 10_000)
    assert statuses() == [401, 200], "what was right before stays in force"
    shown = generate_latest(make_registry(web.app)).decode()
    assert 'pilotfish_credential_reloads_total{outcome="failure"} 1.0' in shown
    assert 'pilotfish_credential_reloads_total{outcome="success"} 1.0' in shown
