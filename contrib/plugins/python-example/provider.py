"""The calls of the contract (section 4), on grpc.aio: one event loop, so there is
no lock. What only the calls between Begin and the answer may do holds the turn."""

import asyncio
import contextlib
import functools
import json

import grpc
from google.protobuf import descriptor_pb2

import contract
import dataplane_pb2 as pb
from contract import Refusal, invalid

NAME, VERSION = "python", "1.0.0"
MAX_MESSAGE = 64 << 20
MAX_WATCHERS = 16
EVENTS_KEPT = 256  # for a slow reader; what comes beyond is a gap in seq
COUNTERS_PER_MESSAGE = 4096


def info():
    return pb.InfoResponse(
        name=NAME, version=VERSION, vendor="Fairlead", layers=[pb.LAYER_L4], scopes=[pb.SCOPE_LOCAL, pb.SCOPE_FORWARDED]
    )


def info_json():
    """What --plugin-info prints: the same."""
    return json.dumps(
        {
            "name": NAME,
            "version": VERSION,
            "vendor": "Fairlead",
            "layers": ["l4"],
            "scopes": ["local", "forwarded"],
            "protocol": 1,
            "protocol_minor": 0,
        }
    )


def error_details(code, reason, message):
    """google.rpc.Status with an ErrorInfo (section 11), encoded by hand: the
    messages are in a package that not every system has."""

    def part(number, value):
        if isinstance(value, int):
            return bytes([number << 3, value])  # all of ours are below 128
        value = value.encode() if isinstance(value, str) else value
        size, n = b"", len(value)
        while n > 0x7F:
            size, n = size + bytes([n & 0x7F | 0x80]), n >> 7
        return bytes([number << 3 | 2]) + size + bytes([n]) + value

    detail = part(1, reason) + part(2, "dataplane.fairlead")
    packed = part(1, "type.googleapis.com/google.rpc.ErrorInfo") + part(2, detail)
    return part(1, code.value[0]) + part(2, message) + part(3, packed)


async def refuse(context, refusal):
    code, message = grpc.StatusCode[refusal.code], refusal.message[:4096]
    details = error_details(code, refusal.reason, message)
    await context.abort(code, message, (("grpc-status-details-bin", details),))


def answers(method):
    """Turns a Refusal into the error of the call."""

    @functools.wraps(method)
    async def call(self, request, context):
        try:
            return await method(self, request, context)
        except Refusal as refusal:
            await refuse(context, refusal)

    return call


def streams(method):
    """The same, for those that answer with a stream."""

    @functools.wraps(method)
    async def call(self, request, context):
        try:
            async for m in method(self, request, context):
                yield m
        except Refusal as refusal:
            await refuse(context, refusal)

    return call


class Provider:
    def __init__(self, forwarder):
        self.forwarder = forwarder
        self.book = contract.Book()
        self.instance = ""
        self.busy = False
        self.statuses = []  # of the last answer
        self.watchers = set()
        self.health = pb.HealthResponse(state=pb.HEALTH_STATE_STARTING, reasons=["not configured"])
        self.ended = asyncio.Event()  # Shutdown was called

    @contextlib.contextmanager
    def turn(self):
        """Refuses a second call instead of queueing it (section 3)."""
        if self.busy:
            raise Refusal("ABORTED", "BUSY", "another call is under way")
        self.busy = True
        try:
            yield
        finally:
            self.busy = False

    @answers
    async def Info(self, request, context):
        return info()

    @answers
    async def Probe(self, request, context):
        with self.turn():
            wrong = await self.forwarder.check()
        check = pb.Check(id="loopback-tcp", required=True, result=pb.VERDICT_SUPPORTED, reason="TCP on 127.255.0.1 works")
        if wrong:
            check.result, check.reason, check.remedy = pb.VERDICT_UNSUPPORTED, wrong, "set the device lo up"
        return pb.ProbeResponse(verdict=check.result, checks=[check])

    @answers
    async def Configure(self, request, context):
        with self.turn():
            if not request.instance_id:
                raise invalid("Configure without instance_id: it tags what the provider makes")
            try:
                config = json.loads(request.config or b"{}")
            except ValueError as e:
                raise invalid(f"the configuration is no JSON: {e}") from e
            if config not in ({}, None):
                raise invalid(f"{NAME} takes no configuration: remove it")
            if self.instance not in ("", request.instance_id):
                self.book.forget()  # another life; what it has in force stays until a snapshot says otherwise
                self.book.given = self.forwarder.services
            self.instance = request.instance_id
            self.resume()
        await self.look()
        return pb.ConfigureResponse()

    def resume(self):
        """Takes connections again after a Drain."""
        if self.forwarder.draining:
            self.forwarder.draining = False
            self.forwarder.prepare(self.forwarder.services)
            self.forwarder.install(self.forwarder.services)

    @answers
    async def State(self, request, context):
        if not self.instance:
            return pb.StateResponse()
        a = self.book.applied
        return pb.StateResponse(
            session=pb.Session(agent_id=a.agent, boot_epoch=a.boot),
            generation=a.generation,
            digest=a.digest,
            instance_id=self.instance,
            complete=a.complete,
        )

    @answers
    async def Reconcile(self, requests, context):
        steps = aiter(requests)
        first = await anext(steps, None)
        with self.turn():
            if first is None or first.WhichOneof("step") != "begin":
                raise invalid("Reconcile has to open with Begin")
            if not self.instance:
                raise Refusal("FAILED_PRECONDITION", "NOT_CONFIGURED", "Reconcile before Configure")
            generation = self.book.begin(first.begin)
            async for m in steps:
                step = m.WhichOneof("step")
                if step == "commit":
                    return self.commit(generation)
                if step != "change":
                    raise invalid("after Begin only Change and Commit are known")
                if generation:  # else it is applied already: told again, such as after an answer that was lost
                    generation.change(m.change)
            raise invalid("the generation ended without Commit: nothing was applied")

    def commit(self, generation):
        """Nothing here waits, so that a call that is given up is all or old."""
        operations = 0
        if generation:
            impossible = {}
            while True:
                given, refused = generation.resolve(impossible)
                failed = self.forwarder.prepare(given)
                if failed.keys() <= impossible.keys():
                    break  # what is in force already may lack a listener too, and is tried each time
                impossible |= {key: contract.rejected("apply-failed", why) for key, why in failed.items()}
            operations = self.forwarder.install(given)
            generation.accept(given, refused)
            self.tell(given, refused)
        return pb.ReconcileResponse(generation=self.book.applied.generation, statuses=self.statuses, operations=operations)

    def tell(self, given, refused):
        """Makes the statuses of the answer, and tells those who watch of news."""
        was = {(s.service.namespace, s.service.name): s for s in self.statuses}
        now = {k: pb.ServiceStatus(service=key_of(k), status=p.status, reason=p.reason, message=p.message) for k, p in refused.items()}
        for key, svc in given.items():
            lack = contract.partial(svc)
            if lack and key not in now:
                now[key] = pb.ServiceStatus(service=key_of(key), status=pb.STATUS_PARTIAL, reason="unsupported", message=lack)
        better = [pb.ServiceStatus(service=key_of(k), status=pb.STATUS_PROGRAMMED) for k in was if k in given and k not in now]
        for status in [s for k, s in now.items() if s != was.get(k)] + better:
            self.emit(status=status)
        self.statuses = [now[k] for k in sorted(now)] + better

    @answers
    async def Health(self, request, context):
        return await self.look()

    async def look(self):
        """Checks the data path, and tells those who watch if that is new."""
        now = pb.HealthResponse(state=pb.HEALTH_STATE_READY)
        if not self.instance:
            now = pb.HealthResponse(state=pb.HEALTH_STATE_STARTING, reasons=["not configured"])
        elif wrong := await self.forwarder.check():
            now = pb.HealthResponse(state=pb.HEALTH_STATE_FAILED, reasons=[wrong])
        if now != self.health:
            self.health = now
            self.emit(health=now)
        return now

    def emit(self, **event):
        for watcher in self.watchers:
            watcher.put(event)

    @streams
    async def Watch(self, request, context):
        if len(self.watchers) == MAX_WATCHERS:
            raise Refusal("RESOURCE_EXHAUSTED", "LIMIT", f"{MAX_WATCHERS} watch already")
        watcher = Watcher()
        self.watchers.add(watcher)
        try:
            watcher.put({"health": await self.look()})
            while True:
                seq, event = await watcher.queue.get()
                yield pb.WatchResponse(instance_id=self.instance, seq=seq, **event)
        finally:
            self.watchers.discard(watcher)

    @streams
    async def Stats(self, request, context):
        counters = [pb.Counter(name="programmed_services", value=len(self.forwarder.services))]
        for key, svc in self.forwarder.services.items():
            counters.append(pb.Counter(service=key_of(key), name="programmed_endpoints", value=len(svc.endpoints)))
        for (key, endpoint), n in self.forwarder.counts.items():
            counters.append(pb.Counter(service=key_of(key), endpoint=endpoint, name="connections", value=n))
        instance = self.instance
        for i in range(0, len(counters), COUNTERS_PER_MESSAGE):
            yield pb.StatsResponse(instance_id=instance, counters=counters[i : i + COUNTERS_PER_MESSAGE])

    @streams
    async def Drain(self, request, context):
        seconds = request.deadline.seconds + request.deadline.nanos / 1e9
        async for active, closed, forced in self.forwarder.drain(max(0, seconds)):
            yield pb.DrainResponse(active=active, closed=closed, forced=forced)

    @answers
    async def Cleanup(self, request, context):
        with self.turn():
            if request.scope not in (pb.CLEANUP_SCOPE_OWNED, pb.CLEANUP_SCOPE_ALL_KNOWN):
                raise invalid(f"scope {request.scope} is not known: a guess would remove something")
            ours = request.scope == pb.CLEANUP_SCOPE_ALL_KNOWN or (request.instance_id or self.instance) == self.instance
            result = pb.CLEANUP_RESULT_REMOVED if ours else pb.CLEANUP_RESULT_KEPT
            if ours and request.dry_run:
                result = pb.CLEANUP_RESULT_WOULD_REMOVE
            items = [
                pb.CleanupItem(object="/".join(key), result=result, message="" if ours else "of another instance")
                for key in sorted(self.forwarder.services)
            ]
            if result == pb.CLEANUP_RESULT_REMOVED:
                self.forget()
            return pb.CleanupResponse(items=items)

    def forget(self):
        self.forwarder.remove()
        self.book.forget()
        self.statuses = []

    @answers
    async def Shutdown(self, request, context):
        with self.turn():
            if request.policy not in (pb.SHUTDOWN_POLICY_KEEP, pb.SHUTDOWN_POLICY_REMOVE):
                raise invalid(f"policy {request.policy} is not known: a guess would remove something")
            if request.policy == pb.SHUTDOWN_POLICY_REMOVE:
                self.forget()
        self.ended.set()
        return pb.ShutdownResponse()


class Watcher:
    """The events for one call of Watch. Nobody waits for its reader."""

    def __init__(self):
        self.queue, self.seq = asyncio.Queue(EVENTS_KEPT), 0

    def put(self, event):
        self.seq += 1
        with contextlib.suppress(asyncio.QueueFull):
            self.queue.put_nowait((self.seq, event))


def key_of(key):
    return pb.ServiceKey(namespace=key[0], name=key[1])


def handlers(provider):
    """The service as gRPC wants it, from the descriptor: a method here for each
    one there, without generated code."""
    service = pb.DESCRIPTOR.services_by_name["DataPlaneProvider"]
    kinds = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
    }
    proto = descriptor_pb2.ServiceDescriptorProto()
    service.CopyToProto(proto)  # only it says which side streams
    table = {}
    for m in proto.method:
        request, response = (getattr(pb, t.rsplit(".", 1)[1]) for t in (m.input_type, m.output_type))
        make = kinds[m.client_streaming, m.server_streaming]
        table[m.name] = make(getattr(provider, m.name), request.FromString, response.SerializeToString)
    return grpc.method_handlers_generic_handler(service.full_name, table)

