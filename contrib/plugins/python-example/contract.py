"""What the contract demands before anything touches a socket: which session and
which generation is obeyed, what the changes of a generation come to, and which
services are kept as they were. Sections are those of dataplane/PROTOCOL.md.

Nothing here does I/O; all values that are handed out are never changed again.
"""

import ipaddress
from dataclasses import dataclass, field, replace

import dataplane_pb2 as pb

MAX_NAME_BYTES = 64  # of an agent id and of a digest
MAX_DEFINITION_BYTES = 256 << 10
MAX_ENDPOINT_TEXT_BYTES = 4 << 10
MAX_FENCED = 64  # agents whose sessions are remembered as over


class Refusal(Exception):
    """An error of section 11. code is the name of a gRPC code."""

    def __init__(self, code, reason, message):
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message


def invalid(message):
    return Refusal("INVALID_ARGUMENT", "INVALID", message)


def base_mismatch(message):
    return Refusal("FAILED_PRECONDITION", "BASE_MISMATCH", message)


@dataclass(frozen=True)
class Problem:
    """Why a service is not simply programmed (section 8)."""

    status: int
    reason: str
    message: str


def rejected(reason, message):
    return Problem(pb.STATUS_REJECTED, reason, message)


def unsupported(reason, message):
    return Problem(pb.STATUS_UNSUPPORTED, reason, message)


@dataclass(frozen=True)
class Endpoint:
    id: int
    address: tuple  # (ip, port), or None if malformed
    foreign: tuple  # the same where no other is said
    state: int
    weight: int
    name: str
    zone: str
    drain_until: tuple

    def label(self):
        return self.name or f"{self.id:016x}"


@dataclass(frozen=True)
class Service:
    """One service, definition and endpoints. Equal ones need no work."""

    key: tuple  # (namespace, name)
    frontends: tuple = ()  # of (address or None, protocol, kind, on_empty)
    definition: bytes = b""  # all of it, to compare
    definition_bytes: int = 0  # as section 8 counts them
    balance: int = 0
    affinity: int = 0
    drain_seconds: float = 0
    since: int = 0  # unix ms of its registration; 0: before all others
    times_ok: bool = True
    endpoints: dict = field(default_factory=dict)  # id → Endpoint; never changed

    def __eq__(self, other):
        return self is other or (
            other is not None and self.definition == other.definition and self.endpoints == other.endpoints
        )

    def seniority(self):
        """What services that want the same are ordered by (section 8)."""
        return self.since, self.key

    def bindings(self):
        """What no two services may share: (address, protocol)."""
        return [(f[0], f[1]) for f in self.frontends]

    def protocols(self):
        """Those of the traffic that the endpoints take (section 8)."""
        return {f[1] for f in self.frontends} or {pb.PROTOCOL_TCP}

    def stands(self):
        """Where the endpoints are, with each protocol that they take."""
        for e in self.endpoints.values():
            for address in {e.address, e.foreign}:
                for protocol in self.protocols():
                    yield (address, protocol), e

    def usable(self):
        """The endpoints that new connections go to (section 9)."""
        able = [e for e in self.endpoints.values() if e.state != pb.ENDPOINT_STATE_DRAINING and e.weight > 0]
        ready = [e for e in able if e.state == pb.ENDPOINT_STATE_READY]
        return ready if 2 * len(ready) >= len(able) else able


def decode_address(b):
    """4 or 16 bytes of IP and 2 of port; None if it is anything else."""
    if len(b) not in (6, 18):
        return None
    return str(ipaddress.ip_address(bytes(b[:-2]))), int.from_bytes(b[-2:], "big")


def decode_service(s, endpoints):
    """The definition as it came, with these endpoints."""
    parts = 32 * (len(s.frontends) + len(s.hosts) + len(s.routes))
    texts = [s.key.namespace, s.key.name, *s.hosts]
    for r in s.routes:
        parts += 32 * (len(r.methods) + len(r.headers))
        texts += [r.host, r.path_prefix, *r.methods, *r.headers.keys(), *r.headers.values()]
    plain = pb.Service()
    plain.CopyFrom(s)
    plain.handle = 0  # a name within the session, no part of the definition
    return Service(
        key=(s.key.namespace, s.key.name),
        frontends=tuple((decode_address(f.address), f.protocol, f.kind, f.on_empty) for f in s.frontends),
        definition=plain.SerializeToString(deterministic=True),
        definition_bytes=parts + sum(len(t.encode()) for t in texts),
        balance=s.balance,
        affinity=s.affinity.kind,
        since=s.since_unix_ms,
        drain_seconds=s.drain_time.seconds + s.drain_time.nanos / 1e9,
        times_ok=all(t.seconds >= 0 and t.nanos >= 0 for t in (s.drain_time, s.affinity.ttl)),
        endpoints=endpoints,
    )


def decode_endpoint(e, old):
    """An endpoint. A known one without an address gets a new state only."""
    until = (e.drain_until.seconds, e.drain_until.nanos)
    if old is not None and not e.address:
        return replace(old, state=e.state, drain_until=until)
    address = decode_address(e.address)
    return Endpoint(
        id=e.id,
        address=address,
        foreign=decode_address(e.address_foreign) if e.address_foreign else address,
        state=e.state,
        weight=e.weight if e.HasField("weight") else 1,
        name=e.name,
        zone=e.zone,
        drain_until=until,
    )


def reachable(address):
    """Whether another host could connect to an address."""
    return address is not None and address[1] != 0 and not ipaddress.ip_address(address[0]).is_unspecified


def check(svc):
    """What is wrong with a service by itself, or None (section 8)."""
    return check_definition(svc) or check_frontends(svc) or check_endpoints(svc)


def partial(svc):
    """What a service asks for beyond what is done here, or None."""
    if svc.balance not in (pb.BALANCE_UNSPECIFIED, pb.BALANCE_RANDOM):
        return "connections are shared out at random, by weight"
    if svc.affinity == pb.AFFINITY_KIND_CLIENT:
        return "a client does not stay at its endpoint"
    return None


def check_definition(svc):
    if "/" in svc.key[0] + svc.key[1]:
        return rejected("bad-value", f"service {svc.key}: neither part may hold a slash")
    if svc.definition_bytes > MAX_DEFINITION_BYTES:
        return rejected("limit", f"the definition takes {svc.definition_bytes} bytes: split the service")
    if svc.balance not in pb.Balance.values() or svc.affinity not in pb.AffinityKind.values():
        return unsupported("unknown-value", f"balance {svc.balance} or affinity {svc.affinity} is not known here")
    if not svc.times_ok:
        return rejected("bad-value", "a time is below 0")
    return None


def check_frontends(svc):
    seen = set()
    for address, protocol, kind, on_empty in svc.frontends:
        known = protocol in (pb.PROTOCOL_TCP, pb.PROTOCOL_UDP) and kind in (
            pb.FRONTEND_KIND_VIP,
            pb.FRONTEND_KIND_INTERCEPT,
        )
        if not known or on_empty not in pb.OnEmpty.values():
            return unsupported("unknown-value", f"frontend {address}: protocol {protocol}, kind {kind}, on_empty {on_empty}")
        ip = address and ipaddress.ip_address(address[0])
        if not reachable(address) or ip.is_multicast or getattr(ip, "ipv4_mapped", None):
            return rejected("bad-frontend", f"frontend {address} is no address of a service")
        if (address, protocol) in seen:
            return rejected("duplicate-frontend", f"frontend {address} is listed twice: remove one")
        if protocol != pb.PROTOCOL_TCP:
            return unsupported("unsupported", f"frontend {address} is UDP, and this provider forwards TCP only")
        seen.add((address, protocol))
    return None


def check_endpoints(svc):
    fronts = {f[0] for f in svc.frontends}
    for e in svc.endpoints.values():
        if e.id == 0:
            return rejected("bad-endpoint", f"endpoint {e.label()} has no id")
        if e.state not in pb.EndpointState.values():
            return unsupported("unknown-value", f"endpoint {e.label()} has state {e.state}")
        if not reachable(e.address) or not reachable(e.foreign):
            return rejected("bad-endpoint", f"endpoint {e.label()} has no address to connect to")
        if len(e.name.encode()) + len(e.zone.encode()) > MAX_ENDPOINT_TEXT_BYTES:
            return rejected("limit", f"endpoint {e.id:016x} has a name and a zone that are too long: shorten them")
        if e.address in fronts or e.foreign in fronts:
            return rejected("loop", f"endpoint {e.label()} is at a frontend of the service itself")
    return None


@dataclass(frozen=True)
class Applied:
    """What the last committed generation was; the zero one before any."""

    agent: str = ""
    boot: int = 0
    generation: int = 0
    digest: bytes = b""
    complete: bool = False


class Book:
    """What the host said, and what of it is in force. Three tables:

    stated   exactly what the host has said in this session
    kept     what was there before and an incomplete snapshot cannot remove;
             None once the session said a complete generation
    given    what is in force
    """

    def __init__(self):
        self.applied = Applied()
        self.fenced = {}  # agent → boot epoch up to which its sessions are over
        self.handles, self.stated, self.kept, self.given = {}, {}, None, {}
        self.refused = {}  # key → Problem

    def forget(self):
        """Nothing is applied any more. The sessions stay known."""
        fenced, applied = self.fenced, self.applied
        self.__init__()
        self.fenced, self.applied = fenced, Applied(agent=applied.agent, boot=applied.boot)

    def begin(self, b):
        """Opens a generation, or refuses it: the table of section 5."""
        agent, boot = b.session.agent_id, b.session.boot_epoch
        if not agent or not boot:
            raise invalid("Begin without a session: set agent_id and boot_epoch")
        if len(agent.encode()) > MAX_NAME_BYTES or len(b.digest) > MAX_NAME_BYTES:
            raise invalid(f"agent_id and digest take {MAX_NAME_BYTES} bytes at most")
        if b.generation == 0:
            raise invalid("generation 0: generations start at 1")
        if b.completeness == 0 or b.completeness not in pb.Completeness.values():
            raise invalid(f"completeness {b.completeness} is not known")
        complete = b.completeness != pb.COMPLETENESS_INCOMPLETE
        now = self.applied
        if (agent, boot) != (now.agent, now.boot):
            if self.is_over(agent, boot):
                raise Refusal("PERMISSION_DENIED", "OLD_SESSION", f"boot {boot} of agent {agent} is over")
            if b.base != 0:
                raise base_mismatch("a new session opens with a snapshot")
            now = Applied()
        if b.generation < now.generation:
            raise Refusal("FAILED_PRECONDITION", "OLD_GENERATION", f"{b.generation}, applied is {now.generation}")
        next = Applied(agent, boot, b.generation, b.digest, complete)
        if b.generation == now.generation:
            if b.digest != now.digest:
                raise base_mismatch(f"generation {now.generation} is applied with another digest")
            if complete != now.complete:
                raise invalid(f"generation {now.generation} is applied with another completeness: raise the generation")
            return None
        if b.base not in (0, now.generation):
            raise base_mismatch(f"changes to generation {b.base}, applied is {now.generation}")
        return Generation(self, next, snapshot=b.base == 0, allow_empty=b.allow_empty)

    def is_over(self, agent, boot):
        if agent == self.applied.agent:
            return boot < self.applied.boot
        return boot <= self.fenced.get(agent, 0)

    def fence(self, now):
        """Remembers that the session before is over, if now is another."""
        was = self.applied
        if not was.agent or (was.agent, was.boot) == (now.agent, now.boot):
            return
        self.fenced.pop(was.agent, None)
        if len(self.fenced) == MAX_FENCED:
            del self.fenced[next(iter(self.fenced))]
        self.fenced[was.agent] = was.boot


class Generation:
    """One generation under way: Change by Change, then resolve, then accept."""

    def __init__(self, book, applied, snapshot, allow_empty):
        self.book, self.applied, self.snapshot, self.allow_empty = book, applied, snapshot, allow_empty
        if snapshot:
            self.handles, self.stated, self.kept = {}, {}, dict(book.given)
        else:
            self.handles, self.stated = dict(book.handles), dict(book.stated)
            self.kept = None if book.kept is None else dict(book.kept)
        if applied.complete:
            self.kept = None

    def change(self, c):
        """Section 6. The order of the four parts counts."""
        for s in c.services:
            self.upsert(s)
        for group in c.endpoints:
            svc = self.of(group.service)
            endpoints = dict(svc.endpoints)
            for e in group.endpoints:
                endpoints[e.id] = decode_endpoint(e, svc.endpoints.get(e.id))
            self.stated[svc.key] = replace(svc, endpoints=endpoints)
        for r in c.removed_endpoints:
            svc = self.of(r.service)
            if r.id not in svc.endpoints:
                raise self.stray(f"service {svc.key} lacks endpoint {r.id:016x}, which is to be removed")
            self.stated[svc.key] = without(svc, r.id)
            if self.kept and not self.snapshot and svc.key in self.kept:
                self.kept[svc.key] = without(self.kept[svc.key], r.id)
        for r in c.removed_services:
            key = self.of(r.service).key
            del self.stated[key], self.handles[r.service]
            if self.kept and not self.snapshot:
                self.kept.pop(key, None)

    def upsert(self, s):
        key = (s.key.namespace, s.key.name)
        if s.handle == 0 or not all(key):
            raise invalid(f"service {key} with handle {s.handle}: namespace, name and handle have to be set")
        known, old = self.handles.get(s.handle), self.stated.get(key)
        if known not in (None, key):
            raise invalid(f"handle {s.handle} is {known} and cannot become {key}")
        if known is None and old is not None:
            raise self.stray(f"service {key} has another handle than {s.handle} already")
        self.handles[s.handle] = key
        self.stated[key] = decode_service(s, old.endpoints if old else {})

    def of(self, handle):
        if handle not in self.handles:
            raise self.stray(f"handle {handle} names no service")
        return self.stated[self.handles[handle]]

    def stray(self, message):
        """A change that does not fit what was stated before."""
        return invalid(message) if self.snapshot else base_mismatch(message)

    def wanted(self):
        """The services as the host wants them: what it stated, and, while it
        does not know all, what was there before."""
        if self.kept is None:
            return self.stated
        wanted = dict(self.kept)
        for key, svc in self.stated.items():
            old = self.kept.get(key)
            wanted[key] = replace(svc, endpoints={**old.endpoints, **svc.endpoints}) if old else svc
        return wanted

    def resolve(self, impossible):
        """Decides what is to be in force: services, and problems of those that
        stay as they were. impossible are problems that the system has."""
        wanted = self.wanted()
        if not self.stated and self.kept is None and self.book.given and not self.allow_empty:
            raise invalid(f"generation {self.applied.generation} would remove all services; set allow_empty if that is meant")
        return Resolver(self.book.given, wanted, impossible).resolve()

    def accept(self, given, refused):
        """Makes the generation the applied one."""
        book = self.book
        book.fence(self.applied)
        book.handles, book.stated, book.kept = self.handles, self.stated, self.kept
        book.given, book.refused, book.applied = given, refused, self.applied


def without(svc, endpoint):
    return replace(svc, endpoints={i: e for i, e in svc.endpoints.items() if i != endpoint})


class Resolver:
    """Which service wins (section 8). All are taken as wanted at first; in
    rounds those in conflict give way; at last those are tried again."""

    def __init__(self, was, want, impossible):
        self.was, self.want, self.problems = was, want, {}
        self.moved = sorted(k for k in {*was, *want} if was.get(k) != want.get(k))  # candidates
        self.placed = set()  # those of them that are as wanted
        self.hopeless = set()
        for key in self.moved:
            problem = impossible.get(key) or (check(want[key]) if key in want else None)
            if problem:
                self.problems[key] = problem
                self.hopeless.add(key)
            else:
                self.placed.add(key)
        self.index()

    def index(self):
        """Notes who may have a frontend, and which endpoints may be at one."""
        self.fronts, self.stands = {}, {}
        versions = [*self.was.values(), *(self.want[k] for k in self.moved if k in self.want and k not in self.hopeless)]
        for svc in versions:
            for binding in svc.bindings():
                self.fronts.setdefault(binding, set()).add(svc.key)
        for svc in versions:
            for binding, _ in svc.stands():
                if binding in self.fronts:
                    self.stands.setdefault(binding, set()).add(svc.key)

    def now(self, key):
        return self.want.get(key) if key in self.placed else self.was.get(key)

    def resolve(self):
        while True:
            losers = {}
            for key in self.moved:
                if key in self.placed and key in self.want:
                    problem = self.conflict(key, strict=False)
                    if problem:
                        losers[key] = problem
            if not losers:
                break
            self.placed -= set(losers)
            self.problems.update(losers)
        self.try_again()
        given = {k: s for k in {*self.was, *self.want} if (s := self.now(k)) is not None}
        return given, self.problems

    def try_again(self):
        losers = [k for k in self.moved if k not in self.placed and k not in self.hopeless]
        losers.sort(key=lambda k: self.want[k].seniority())
        again = True
        while again:
            again = False
            for key in losers:
                if key in self.placed:
                    continue
                self.placed.add(key)
                problem = self.conflict(key, strict=True)
                if problem:
                    self.placed.discard(key)
                    self.problems[key] = problem
                else:
                    self.problems.pop(key, None)
                    again = True

    def conflict(self, key, strict):
        """Why a placed service cannot stay: any conflict if strict, else only
        one in which it has to give way."""
        svc = self.want[key]
        for binding in svc.bindings():
            for other in self.holding(self.fronts, binding, key):
                if strict or self.loses_frontend(key, other, binding):
                    return rejected("duplicate-frontend", f"frontend {binding[0]} belongs to service {'/'.join(other)}")
            for other in self.holding(self.stands, binding, key):
                if strict or self.settled(other) or self.front_loses(key, other, binding):
                    return rejected("loop", f"frontend {binding[0]} is where an endpoint of service {'/'.join(other)} stands")
        for binding, e in svc.stands():
            for other in self.holding(self.fronts, binding, key):
                if strict or self.settled(other) or not self.front_loses(other, key, binding):
                    return rejected("loop", f"endpoint {e.label()} is at a frontend of service {'/'.join(other)}")
        return None

    def holding(self, table, binding, but):
        """The other services that have a frontend, or an endpoint, there now."""
        for key in sorted(table.get(binding, ())):
            svc = self.now(key) if key != but else None
            if svc is None:
                continue
            has = binding in svc.bindings() if table is self.fronts else any(b == binding for b, _ in svc.stands())
            if has:
                yield key

    def settled(self, key):
        """Whether a service does not change, or fell back: all give way to it."""
        return key not in self.placed

    def had(self, key, binding):
        return key in self.was and binding in self.was[key].bindings()

    def loses_frontend(self, key, other, binding):
        if self.settled(other) or self.had(other, binding):
            return True
        return not self.had(key, binding) and self.older(other, key)

    def older(self, key, other):
        """Which of two that are wanted wins, if nothing else decides."""
        return self.want[key].seniority() < self.want[other].seniority()

    def front_loses(self, front, end, binding):
        """Of a frontend and an endpoint of another service at one place."""
        if self.had(front, binding):
            return False
        stood = end in self.was and any(b == binding for b, _ in self.was[end].stands())
        return stood or self.older(end, front)
