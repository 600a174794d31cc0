"""People talk to the real OpenClaw, and our server with the embedded model learns what they said to what.

Once as OpenClaw is, configured by what `openclaw-rl connect openclaw` prints, and once with our plugin.
"""

from __future__ import annotations

import pytest
from forcing_proxy import Proxy
from real_openclaw import OpenClaw
from recorded import Records
from running_processes import House
from snippet import connect, shortened
from talk import assert_judged, assert_paired, assert_the_rest_is_side, talk

from openclaw_rl.connect.openclaw import plugin_folder

pytestmark = pytest.mark.openclaw


@pytest.fixture
def records(house: House, proxy: Proxy) -> Records:
    proxy.seen.clear()
    return Records(house.http, house.store)


def test_without_any_plugin(openclaw: OpenClaw, records: Records, proxy: Proxy) -> None:
    patch, _ = connect(f"{proxy.url}/v1")
    openclaw.apply(shortened(patch))
    with openclaw:
        told = talk(openclaw, records)
    assert_paired(told)
    assert_judged(told)
    assert_the_rest_is_side(told)
    known = {"recognised as OpenClaw's heartbeat", "recognised as OpenClaw's title"}
    assert known <= {record.listed["kind_reason"] for record in records.of_kind("side")}
    assert not any("x-turn-type" in seen.headers for seen in proxy.seen)
    assert all("x-session-affinity" in seen.headers for seen in proxy.seen if seen.body.get("tools"))


def test_with_our_plugin(openclaw: OpenClaw, records: Records, proxy: Proxy) -> None:
    patch, _ = connect(f"{proxy.url}/v1")
    del patch["models"]["providers"]["openclaw-rl"]["models"][0]["compat"]  # the plugin alone names sessions
    openclaw.apply(shortened(patch))
    openclaw.command("plugins", "install", "--link", str(plugin_folder()), "--force", "--accept-capabilities")
    openclaw.command("config", "set", "plugins.entries.openclaw-rl.hooks.allowConversationAccess", "true")
    with openclaw:
        told = talk(openclaw, records)
    assert_paired(told)
    assert_judged(told)
    assert_the_rest_is_side(told)
    reasons = {(record.listed["kind"], record.listed["kind_reason"]) for record in records.all()}
    assert reasons == {("main", "the client said main"), ("side", "the client said side")}
    assert all(seen.headers["x-turn-type"] in ("main", "side") for seen in proxy.seen)
    assert all("x-session-id" in seen.headers for seen in proxy.seen if seen.body.get("tools"))
    assert not any("x-session-affinity" in seen.headers for seen in proxy.seen)
