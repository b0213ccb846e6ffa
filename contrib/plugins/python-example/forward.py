"""The data path: a listener for each frontend, and a task for each connection,
which copies bytes to an endpoint and back. All of it is on one event loop."""

import asyncio
import collections
import random
import socket
import struct

CONNECT_SECONDS = 3  # that one endpoint may take to answer
ACCEPT_PAUSE_SECONDS = 1
BACKLOG = 512


class Forwarder:
    """What is in force. Every method but check and drain runs to its end without
    giving up the event loop, so that nobody sees a half of what it does."""

    def __init__(self, log):
        self.log = log
        self.services = {}  # key → contract.Service
        self.listeners = {}  # address → (socket, key)
        self.fresh = {}  # address → socket: opened by prepare for install
        self.connections = {}  # (key, endpoint id) → set of tasks
        self.tasks = set()  # all of them: the event loop holds none
        self.counts = collections.Counter()  # (key, endpoint id) → connections
        self.draining = False
        self.echo = self.knock = None  # of check

    # ---- programming

    def wants(self, services):
        """Address → key of each listener. Where no endpoint is usable nobody
        listens: the kernel refuses the connection, or passes it to who does."""
        if self.draining:
            return {}
        return {f[0]: key for key, svc in services.items() if svc.frontends and svc.usable() for f in svc.frontends}

    def prepare(self, services):
        """Opens what services need beyond what is open, and returns, for each
        that could not have it, why. What is in force stays in force."""
        failed = {}
        for address, key in self.wants(services).items():
            if address in self.listeners or address in self.fresh or key in failed:
                continue
            try:
                self.fresh[address] = listen(address)
            except OSError as e:
                failed[key] = f"{address[0]} port {address[1]}: {e.strerror}: make it an address of this host, and free the port"
        return failed

    def install(self, services):
        """Puts services in force, with the listeners that there are, and returns
        how many are different from before."""
        wanted = self.wants(services)
        for address in [a for a in self.listeners if a not in wanted]:
            self.close(self.listeners.pop(address)[0])
        for address, key in wanted.items():
            if address in self.listeners:
                self.listeners[address] = (self.listeners[address][0], key)
            elif address in self.fresh:
                opened = self.fresh.pop(address)
                self.listeners[address] = (opened, key)
                self.listen(opened, address)
        self.abandon()
        was, self.services = self.services, services
        changed = [k for k in {*was, *services} if was.get(k) != services.get(k)]
        for key in changed:
            self.retire(key, was.get(key))
        return len(changed)

    def abandon(self):
        """Closes what was prepared and is not needed."""
        while self.fresh:
            self.fresh.popitem()[1].close()

    def close(self, opened):
        asyncio.get_running_loop().remove_reader(opened)
        opened.close()

    def retire(self, key, was):
        """Ends the connections to endpoints that are gone, when the drain time
        of their service is over (section 10)."""
        left = self.services[key].endpoints if key in self.services else {}
        for endpoint in was.endpoints if was else ():
            tasks = self.connections.get((key, endpoint), ())
            if endpoint not in left and tasks:
                asyncio.get_running_loop().call_later(was.drain_seconds, cancel, list(tasks))

    def remove(self):
        """Takes everything away, connections too."""
        for tasks in self.connections.values():
            cancel(list(tasks))
        return self.install({})

    # ---- forwarding

    def listen(self, opened, address):
        """Takes connections, while the listener is in force."""
        if address in self.listeners and self.listeners[address][0] is opened:
            asyncio.get_running_loop().add_reader(opened, self.accept, opened, address)

    def accept(self, opened, address):
        for _ in range(BACKLOG):
            try:
                client, _ = opened.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as e:  # no descriptors are left, for one: it would be asked again at once, and in vain
                self.log(f"accept at {address}: {e}; trying again in {ACCEPT_PAUSE_SECONDS} s")
                loop = asyncio.get_running_loop()
                loop.remove_reader(opened)
                loop.call_later(ACCEPT_PAUSE_SECONDS, self.listen, opened, address)
                return
            client.setblocking(False)
            self.spawn(self.serve(client, self.listeners[address][1]))

    def spawn(self, work):
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.ended)

    def ended(self, task):
        self.tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error and not isinstance(error, OSError):  # OSError: either side went away
            self.log(f"a connection ended by {error!r}")

    async def serve(self, client, key):
        """One connection, from its first byte to its last."""
        with client:
            svc = self.services.get(key)
            for endpoint in order(svc.usable() if svc else []):
                server = await connect(endpoint.address)
                if server is None:
                    continue  # set aside for this connection only: health checks are the host's
                with server:
                    await self.count((key, endpoint.id), join(client, server))
                return
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset

    async def count(self, where, work):
        self.counts[where] += 1
        task = asyncio.current_task()
        tasks = self.connections.setdefault(where, set())
        tasks.add(task)
        try:
            await work
        finally:
            tasks.discard(task)
            if not tasks:
                self.connections.pop(where, None)

    def active(self):
        return sum(len(tasks) for tasks in self.connections.values())

    async def drain(self, seconds):
        """Takes no new connections, and yields (active, closed, forced) until
        none is left or the time is over."""
        self.draining = True
        self.install(self.services)
        begun, end = self.active(), asyncio.get_running_loop().time() + seconds
        while self.active() and (left := end - asyncio.get_running_loop().time()) > 0:
            yield self.active(), begun - self.active(), 0
            every = [t for tasks in self.connections.values() for t in tasks]
            await asyncio.wait(every, timeout=min(left, 1), return_when=asyncio.FIRST_COMPLETED)
        every = [t for tasks in self.connections.values() for t in tasks]
        cancel(every)
        await asyncio.gather(*every, return_exceptions=True)
        yield 0, begun - len(every), len(every)

    # ---- health

    async def check(self):
        """Goes through the data path: a byte by a listener of its own to an
        endpoint of its own and back. Returns what is wrong, or None."""
        loop = asyncio.get_running_loop()
        try:
            if self.echo is None:
                self.echo = await asyncio.start_server(echo, "127.255.0.1", 0)
                self.knock = listen(("127.255.0.1", 0))
                loop.add_reader(self.knock, self.answer)
            async with asyncio.timeout(1):
                reader, writer = await asyncio.open_connection(*self.knock.getsockname())
                try:
                    writer.write(b"?")
                    if await reader.read(1) != b"?":
                        return "a connection through the data path brought nothing back"
                finally:
                    writer.close()
        except (OSError, TimeoutError) as e:
            return f"a connection through the data path failed: {e or 'no answer in 1 s'}"
        return None

    def answer(self):
        async def through(client):
            with client:
                server = await connect(self.echo.sockets[0].getsockname())
                if server:
                    with server:
                        await join(client, server)

        try:
            client, _ = self.knock.accept()
        except OSError:
            return
        client.setblocking(False)
        self.spawn(through(client))


def listen(address):
    opened = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.setblocking(False)
        opened.bind(address)
        opened.listen(BACKLOG)
    except OSError:
        opened.close()
        raise
    return opened


def order(usable):
    """The endpoints in the order in which a connection tries them: by chance,
    each first as often as its weight says."""
    return sorted(usable, key=lambda e: random.random() ** (1 / e.weight), reverse=True)


async def connect(address):
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    server = socket.socket(family, socket.SOCK_STREAM)
    server.setblocking(False)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await asyncio.get_running_loop().sock_connect(server, address)
        return server
    except (OSError, TimeoutError):
        server.close()
        return None
    except BaseException:
        server.close()
        raise


async def join(client, server):
    """Copies both ways, until both ended or one failed."""
    both = [asyncio.ensure_future(copy(client, server)), asyncio.ensure_future(copy(server, client))]
    try:
        await asyncio.gather(*both)
    finally:
        cancel(both)
        await asyncio.gather(*both, return_exceptions=True)  # before their sockets are closed


async def copy(source, sink):
    """Copies until the end of source, and passes that on."""
    loop = asyncio.get_running_loop()
    while data := await loop.sock_recv(source, 1 << 16):
        await loop.sock_sendall(sink, data)
    sink.shutdown(socket.SHUT_WR)


async def echo(reader, writer):
    writer.write(await reader.read(1))
    writer.close()


def cancel(tasks):
    for task in tasks:
        task.cancel()
