"""TLS on the API's port: accepted callers, changed files, and the cost of bad callers."""

from __future__ import annotations

import asyncio
import datetime
import socket
import ssl
from typing import TYPE_CHECKING, Any

import pytest

from service.base.watched_file import FileFaultError
from service.listener import listeners
from service.listener.listener_tls import ListenerTls, tls_of
from service.process.server import report_certificate
from service.wire.asgi import respond
from tests.support.certificates import Authority, self_signed, weak, write_pem
from tests.support.coroutine_tests import until
from tests.support.file_looks import FileLooks
from tests.support.http_app import NativeApp
from tests.support.served import Served, ended, limits, on_each_loop
from tests.support.waiting import patient

if TYPE_CHECKING:
    from pathlib import Path

    from service.wire.asgi import Receive, Scope, Send
    from tests.support.certificates import Identity
    from tests.support.served import Caller

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
CLOSING = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


class Files:
    """A certificate, its key and the clients' authority as files, and callers that trust them."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority()
        self.certificate = folder / "tls.crt"
        self.key = folder / "tls.key"
        self.client_ca = folder / "ca.crt"
        self.put(self.authority.issue("localhost"))
        self.clients = Authority()
        self.clients.write_trust(self.client_ca)
        self._folder = folder

    def put(self, identity: Identity) -> None:
        write_pem(self.certificate, identity.chain)
        write_pem(self.key, identity.key)

    def tls(self, *, asks_clients: bool = False) -> ListenerTls:
        client_ca = str(self.client_ca) if asks_clients else ""
        return ListenerTls(str(self.certificate), str(self.key), client_ca)

    def caller(self, identity: Identity | None = None) -> ssl.SSLContext:
        """A caller's context that trusts us, and shows who it is if asked."""
        context = ssl.create_default_context(cadata=self.authority.certificate)
        if identity is not None:
            context.load_cert_chain(identity.write(self._folder / "client.pem"))
        return context


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


async def said_scheme(scope: Scope, receive: Receive, send: Send) -> None:
    body = scope["scheme"].encode()
    await respond(send, 200, [(b"content-length", b"%d" % len(body))], body)


def over_tls(tls: ListenerTls, **given: float) -> Served:
    return Served(said_scheme, context=tls.context, limits=limits(**given))


async def ask(served: Served, context: ssl.SSLContext) -> bytes:
    """The answer to a caller with this context; empty if it is not accepted."""
    try:
        caller = await served.call(context=context)
        caller.send(CLOSING)
        return await caller.until_closed()
    except (ssl.SSLError, ConnectionError):
        return b""


# -- accepted callers ----------------------------------------------------------------------------------------


@on_each_loop
async def test_tls_of_today_is_spoken_and_the_application_knows(files: Files) -> None:
    async with over_tls(files.tls()) as served:
        assert (await ask(served, files.caller())).endswith(b"https")
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = files.caller()
            context.minimum_version = context.maximum_version = version
            caller = await served.call(context=context)
            spoken = caller.writer.get_extra_info("ssl_object").version()
            assert spoken == version.name.replace("_", ".")


@on_each_loop
async def test_of_the_protocols_that_a_caller_offers_http_1_1_is_chosen(files: Files) -> None:
    async with over_tls(files.tls()) as served:
        for offered in (["h2", "http/1.1"], ["http/1.1"]):
            context = files.caller()
            context.set_alpn_protocols(offered)
            caller = await served.call(context=context)
            chosen = caller.writer.get_extra_info("ssl_object").selected_alpn_protocol()
            assert chosen == "http/1.1", offered


def test_renegotiation_and_compression_are_off_for_callers(files: Files) -> None:
    for asks_clients in (False, True):
        options = files.tls(asks_clients=asks_clients).context().options
        assert options & ssl.OP_NO_RENEGOTIATION
        assert options & ssl.OP_NO_COMPRESSION


def test_after_a_change_of_files_all_of_this_holds_too(files: Files) -> None:
    tls = files.tls()
    first = tls.context()
    files.put(files.authority.issue("localhost"))
    FileLooks(tls).look()
    assert tls.context() is not first
    assert tls.context().options == first.options
    assert tls.context().minimum_version == first.minimum_version


def test_tls_1_1_is_not_spoken(files: Files) -> None:
    assert files.tls().context().minimum_version == ssl.TLSVersion.TLSv1_2


@on_each_loop
async def test_with_an_authority_for_clients_each_needs_its_certificate(files: Files) -> None:
    callers = {"known": files.clients.issue("client"), "none": None, "stranger": Authority().issue("client")}
    async with over_tls(files.tls(asks_clients=True)) as served:
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            for name, identity in callers.items():
                context = files.caller(identity)
                context.maximum_version = version
                said = await ask(served, context)
                assert said.endswith(b"https") if name == "known" else said == b"", (name, version)
                await until(lambda: not served.connections.open)


@on_each_loop
async def test_an_intermediate_authority_of_clients_is_enough(files: Files) -> None:
    middle = files.clients.intermediate()
    middle.write_trust(files.client_ca)
    async with over_tls(files.tls(asks_clients=True)) as served:
        assert (await ask(served, files.caller(middle.issue("client")))).endswith(b"https")


@on_each_loop
async def test_its_own_origin_is_https(files: Files) -> None:
    async with Served(NativeApp().app, context=files.tls().context) as served:
        for origin, status in ((b"https://localhost:8085", b"200"), (b"http://localhost:8085", b"403")):
            caller = await served.call(context=files.caller())
            head = b"GET /v1/status HTTP/1.1\r\nHost: localhost:8085\r\nOrigin: %s\r\n" % origin
            caller.send(head + b"Connection: close\r\n\r\n")
            assert (await caller.until_closed())[9:12] == status, origin


# -- bad callers ---------------------------------------------------------------------------------------------


@on_each_loop
async def test_plain_http_at_the_tls_port_is_answered_as_such(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    async with over_tls(files.tls()) as served:
        caller = await served.call()
        caller.send(GET)
        said = await caller.until_closed()
        await until(lambda: not served.connections.open)
        assert +ended(served.connections) == {"handshake": 1}
    assert said.startswith(b"HTTP/1.1 400")
    assert b"this port speaks TLS (api_tls_certificate_file); use https://" in said
    assert b'"written":"no"' in said
    assert not caplog.records


def test_plain_http_is_read_before_the_connection_is_closed() -> None:
    """Else the caller gets a reset, with which some systems throw the answer away. TCP on Linux hides it."""
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(GET)
        listeners._turn_away(ours, GET[:1])
        assert theirs.recv(65_536).startswith(b"HTTP/1.1 400")
        assert theirs.recv(1) == b""


@on_each_loop
async def test_bytes_that_are_no_handshake_end_the_connection_and_log_nothing(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    async with over_tls(files.tls()) as served:
        for written in (b"\x00\x00\x00\x10junk", b"\x16\x03\x01\x00\x05junk\r\n\r\n", b"\x80"):
            caller = await served.call()
            caller.send(written)
            await caller.until_closed()
            await until(lambda: not served.connections.open)
        assert +ended(served.connections) == {"handshake": 3}
    assert not [record for record in caplog.records if record.levelname != "DEBUG"]


@on_each_loop
async def test_a_handshake_that_does_not_come_whole_is_ended_in_time(files: Files) -> None:
    """Of one it got nothing, of the other half a handshake."""
    async with over_tls(files.tls(), head_s=0.1) as served:
        callers = [await served.call() for _ in range(2)]
        callers[1].send(b"\x16\x03\x01\x02\x00")
        assert [await caller.until_closed() for caller in callers] == [b"", b""]
        await until(lambda: not served.connections.open)
        assert +ended(served.connections) == {"handshake": 2}


@on_each_loop
async def test_handshakes_count_among_the_connections(files: Files) -> None:
    async with over_tls(files.tls(), max_connections=2) as served:
        callers = [await served.call() for _ in range(4)]
        await until(lambda: served.connections.open == 2)
        await callers[0].hang_up()
        await callers[1].hang_up()
        await until(lambda: served.connections.open == 2 and not callers[2].reader.at_eof())


@on_each_loop
async def test_a_listener_that_closes_gives_handshakes_up(files: Files) -> None:
    async with over_tls(files.tls()) as served:
        callers = [await served.call() for _ in range(3)]
        callers[0].send(b"\x16\x03")
        await until(lambda: served.connections.open == 3)
        served.listener.close()
        for caller in callers:
            assert await caller.until_closed() == b""
        await until(lambda: not served.connections.open)


@on_each_loop
async def test_at_the_end_an_idle_caller_without_close_notify_is_not_waited_for(files: Files) -> None:
    async with over_tls(files.tls()) as served:
        caller = await served.call(context=files.caller())
        caller.send(GET)
        await caller.answer()
        caller.writer.transport.pause_reading()  # type: ignore[attr-defined]  # so it hears no goodbye
        served.shut_down()
        async with asyncio.timeout(patient(15.0)):  # TLS itself would wait for twice as long
            await until(lambda: not served.connections.open)


@on_each_loop
async def test_an_answer_that_goes_on_slowly_is_not_cut_by_the_goodbye(files: Files) -> None:
    size = 2 * 1024 * 1024

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, 200, [(b"content-length", b"%d" % size)], bytes(size))

    async with Served(app, context=files.tls().context, send_buffer_bytes=4_096) as served:
        caller = await served.call(context=files.caller(), receive_buffer_bytes=4_096)
        caller.send(CLOSING)
        await caller.reader.readuntil(b"\r\n\r\n")
        taken = 0
        while part := await caller.reader.read(128 * 1024):
            taken += len(part)
            await asyncio.sleep(0.01)
    assert taken == size


# -- files that change ---------------------------------------------------------------------------------------


class Looked(FileLooks):
    """A ListenerTls whose files are looked at when a test says so."""

    def __init__(self, files: Files) -> None:
        self.web = NativeApp()
        self.tls = files.tls()
        report_certificate(self.tls, self.web.app.client_metrics)
        super().__init__(self.tls)

    def metric(self, name: str, **labels: str) -> float:
        return next(
            sample.value
            for family in self.web.app.client_metrics.collect()
            for sample in family.samples
            if sample.name == f"pilotfish_{name}" and sample.labels == labels
        )


async def certificate_of(served: Served, files: Files) -> tuple[Caller, bytes]:
    caller = await served.call(context=files.caller())
    der = caller.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    return caller, der


@on_each_loop
async def test_new_connections_get_the_new_certificate_and_old_ones_go_on(files: Files) -> None:
    looked = Looked(files)
    async with over_tls(looked.tls) as served:
        old, first = await certificate_of(served, files)
        expires = datetime.datetime.now(datetime.UTC).replace(microsecond=0) + datetime.timedelta(hours=12)
        renewed = files.authority.intermediate().issue("localhost", expires=expires)
        files.put(renewed)
        looked.look()
        _, second = await certificate_of(served, files)
        assert (second, first != second) == (renewed.der, True)
        old.send(GET)
        assert (await old.answer())[0] == 200
    assert looked.metric("credential_reloads_total", outcome="success") == 1
    assert looked.tls.expires_at_s == expires.timestamp()  # its intermediate is valid for longer
    expiry = "tls_certificate_expiry_timestamp_seconds"
    assert looked.metric(expiry, listener="api") == looked.tls.expires_at_s


@on_each_loop
async def test_openssls_older_label_and_a_comment_about_encryption_are_taken(files: Files) -> None:
    identity = files.authority.issue("localhost")
    write_pem(files.certificate, identity.chain.replace(" CERTIFICATE-", " X509 CERTIFICATE-"))
    write_pem(files.key, f"the ENCRYPTED one is kept elsewhere\n{identity.key}")
    files.clients.write_trust(files.client_ca)
    authority = files.client_ca.read_text(encoding="ascii")
    write_pem(files.client_ca, authority.replace(" CERTIFICATE-", " X509 CERTIFICATE-"))
    async with over_tls(files.tls(asks_clients=True)) as served:
        answer = await ask(served, files.caller(files.clients.issue("client")))
    assert answer.endswith(b"https")


@on_each_loop
async def test_the_authority_of_clients_is_reloaded_with_the_rest(files: Files) -> None:
    files.clients.write_trust(files.client_ca)
    tls, other = files.tls(asks_clients=True), Authority()
    async with over_tls(tls) as served:

        async def let_in() -> list[bool]:
            clients = (other.issue("client"), files.clients.issue("client"))
            return [(await ask(served, files.caller(client))).endswith(b"https") for client in clients]

        assert await let_in() == [False, True]
        other.write_trust(files.client_ca)
        FileLooks(tls).look()
        assert await let_in() == [True, False]


@on_each_loop
async def test_an_unusable_certificate_is_logged_once_and_changes_nothing(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()
    files.put(files.authority.issue("localhost"))
    looked = Looked(files)
    async with over_tls(looked.tls) as served:
        _, first = await certificate_of(served, files)
        write_pem(files.key, files.authority.issue("localhost").key)
        looked.look()
        looked.look()
        _, second = await certificate_of(served, files)
        assert first == second
    (reported,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert reported.startswith(f"api_tls_certificate_file: {files.key}: the key does not belong to the first")
    assert reported.endswith("the earlier value stays in use")
    assert looked.metric("credential_reloads_total", outcome="failure") == 1


# -- at the start --------------------------------------------------------------------------------------------


def test_settings_that_belong_together_must_be_given_together() -> None:
    certificate, key, ca = "api_tls_certificate_file", "api_tls_key_file", "api_tls_client_ca_file"
    for given, named in (
        ({certificate}, f"{key}: missing, but {certificate} is given"),
        ({key}, f"{certificate}: missing, but {key} is given"),
        ({ca}, f"{certificate}: missing, but {ca} is given"),
        ({certificate, ca}, f"{key}: missing, but {certificate} is given"),
    ):
        paths: dict[str, Any] = dict.fromkeys(given, "tls.pem")
        with pytest.raises(FileFaultError, match=named):
            tls_of(NativeApp(**paths).settings)


def test_without_files_there_is_no_tls() -> None:
    assert tls_of(NativeApp().settings) is None


def wrong(files: Files, how: str) -> str:
    """Makes the files unusable; returns the expected complaint."""
    good = files.authority.issue("localhost")
    if how == "no file":
        files.key.unlink()
        return rf"can't read {files.key}: No such file or directory"
    if how == "no certificate":
        write_pem(files.certificate, good.key)
        return "holds no PEM certificate"
    if how == "no key":
        write_pem(files.key, good.chain)
        return f"{files.key} holds no PEM key"
    if how == "encrypted key":
        write_pem(files.key, good.key_encrypted_with("secret"))
        return f"{files.key}: the key is encrypted; give one without a password"
    if how == "encrypted key of OpenSSL's older form":
        headers = "Proc-Type: 4,ENCRYPTED\nDEK-Info: DES-CBC,0011223344556677\n\n"
        write_pem(files.key, good.key.replace("\n", f"\n{headers}", 1))
        return f"{files.key}: the key is encrypted; give one without a password"
    if how == "another's key":
        write_pem(files.key, Authority().issue("localhost").key)
        return "the key does not belong to the first certificate"
    if how == "key of another kind":
        write_pem(files.key, files.authority.issue("localhost", is_rsa=True).key)
        return "the key does not belong to the first certificate"
    if how == "damaged certificate":
        write_pem(files.certificate, good.chain.replace(good.chain[40:60], "A" * 20))
        return rf"{files.certificate}: certificate 1 of \d is damaged"
    if how == "two certificates on one line":  # `cat` of a file without a last line end
        write_pem(files.certificate, good.chain.strip() + files.authority.certificate)
        return f"{files.certificate}: a certificate can't be read; its BEGIN and END must each be"
    if how == "a certificate that is cut":
        write_pem(files.certificate, good.chain + files.authority.certificate[:100])
        return f"{files.certificate}: one of 2 certificates has no END; was the file cut\\?"
    if how == "authority that is cut":
        write_pem(files.client_ca, good.chain + files.authority.certificate[:100])
        return f"{files.client_ca}: one of 2 certificates has no END"
    if how == "indented certificate":
        write_pem(files.certificate, good.chain.replace("\n", "\n  "))
        return f"{files.certificate}: a certificate can't be read"
    if how == "damaged key":
        write_pem(files.key, good.key.replace(good.key[40:60], "A" * 20))
        return f"{files.key}: the key can't be read: it is damaged; replace it"
    if how == "weak":
        files.put(weak("localhost"))
        return "OpenSSL rejects it with .*: ee key too small"
    if how == "no authority":
        write_pem(files.client_ca, good.key)
        return f"{files.client_ca} holds no PEM certificate"
    write_pem(files.client_ca, good.chain.replace(good.chain[40:60], "A" * 20))
    return rf"{files.client_ca}: certificate 1 of \d is damaged"


def test_the_fault_of_the_files_is_named(tmp_path: Path) -> None:
    for how in (
        "no file",
        "no certificate",
        "no key",
        "encrypted key",
        "encrypted key of OpenSSL's older form",
        "another's key",
        "key of another kind",
        "damaged certificate",
        "two certificates on one line",
        "a certificate that is cut",
        "indented certificate",
        "damaged key",
        "weak",
        "no authority",
        "damaged authority",
        "authority that is cut",
    ):
        files = Files(tmp_path)
        with pytest.raises(FileFaultError, match=wrong(files, how)) as raised:
            files.tls(asks_clients=True)
        assert "MI" not in str(raised.value), how  # as every key begins


@on_each_loop
async def test_a_certificate_may_sign_itself(files: Files) -> None:
    own = self_signed("localhost")
    files.put(own)
    async with over_tls(files.tls()) as served:
        assert (await ask(served, ssl.create_default_context(cadata=own.chain))).endswith(b"https")
