"""The twin of `MessageStatistics`, which keeps every packet in dictionaries."""

from __future__ import annotations

from collections import defaultdict

from message_traffic import of

from rocescope.analyzer.track.batch import IN_ORDER, RECOVERED, REORDERED, RETRANSMITTED
from rocescope.analyzer.wire.bth import opcode_name

HALF = 1 << 23


def ahead_of(psn, origin):
    return (psn - origin + HALF) % (1 << 24) - HALF


class Twin:
    """The same statistics from dictionaries of all packets and all requests; peers 0 and 1."""

    def __init__(self, rows):
        self.seen = defaultdict(dict)
        self.waiting = defaultdict(list)
        self.values = defaultdict(list)
        self.count = defaultdict(int)
        self.outstanding = defaultdict(int)
        self.most = defaultdict(int)
        self.covered = {}
        self.delivered = defaultdict(Delivered)
        for r in rows:
            self.take(r, opcode_name(r["opcode"]).removeprefix("RC_"))

    def take(self, r, name):
        flow, psn, time, verdict = r["flow"], r["psn"], r["time_ns"], r["verdict"]
        if name == "ACK":
            kind = r["aeth"] >> 29 & 3
            if kind != 2:
                self.delivered[1 - flow].answered(psn - (kind != 0), time)
            if kind == 0:
                self.answer(1 - flow, psn, time, acknowledged=psn)
            elif kind != 2:
                self.answer(1 - flow, (psn - 1) % (1 << 24), time)
            return
        response = name.startswith("READ_RESPONSE") or name == "ATOMIC_ACK"
        if verdict == RETRANSMITTED and not response:
            for entry in self.waiting[flow]:
                if entry["psn"] == psn:
                    entry["ack"] = entry["first"] = False
        if verdict == RETRANSMITTED:
            self.delivered[flow].again(psn, time, not response)
        if verdict not in (IN_ORDER, REORDERED, RECOVERED):
            return
        if response:
            self.delivered[flow].times.append(time)
            self.delivered[flow].acknowledged += r["payload_bytes"]
            self.delivered[1 - flow].answered(psn, time)
        else:
            self.delivered[flow].first(psn, r["payload_bytes"], time)
        begins, ends = name.endswith(("FIRST", "ONLY")), name.endswith(("LAST", "ONLY"))
        timed = verdict != RECOVERED
        if response:
            exact = psn if timed else None
            whole = name == "ATOMIC_ACK"
            self.answer(1 - flow, psn, time, exact, begins or whole, ends or whole)
            return
        if name in ("READ_REQUEST", "FETCH_ADD"):
            self.begin(flow)
            self.complete(flow, r["dma_length"] if name == "READ_REQUEST" else 8)
            first = timed and name == "READ_REQUEST"
            self.wait(flow, psn, time, time, done=False, read=True, first=first)
            return
        if begins:
            self.begin(flow)
        if r["bth_flags"] and timed:
            self.wait(flow, psn, time, time, done=True, ack=True)
        self.seen[flow][psn] = (begins, ends, r["payload_bytes"], time)
        self.assemble(flow, psn)

    def begin(self, flow):
        self.outstanding[flow] += 1
        self.most[flow] = max(self.most[flow], self.outstanding[flow])

    def complete(self, flow, size):
        self.count[flow] += 1
        self.values[flow, "size"].append(size)

    def run(self, flow, psn):
        """The PSNs seen around `psn` that belong to the same message."""
        seen, run = self.seen[flow], [psn]
        while not seen[run[0]][0]:
            before = (run[0] - 1) % (1 << 24)
            if before not in seen or seen[before][1]:
                break
            run.insert(0, before)
        while not seen[run[-1]][1]:
            after = (run[-1] + 1) % (1 << 24)
            if after not in seen or seen[after][0]:
                break
            run.append(after)
        return run

    def assemble(self, flow, psn):
        run, seen = self.run(flow, psn), self.seen[flow]
        if not (seen[run[0]][0] and seen[run[-1]][1]):
            return
        times = [seen[p][3] for p in run]
        self.complete(flow, sum(seen[p][2] for p in run))
        if len(run) > 1:
            self.values[flow, "duration"].append(max(times) - min(times))
        self.wait(flow, run[-1], max(times), min(times), done=False)

    def wait(self, flow, psn, sent, begun, done, ack=False, read=False, first=False):
        if not read and flow in self.covered and ahead_of(psn, self.covered[flow]) <= 0:
            self.outstanding[flow] -= not done
            return
        for entry in self.waiting[flow]:
            if entry["psn"] == psn:
                entry |= {"done": False, "begun": begun}
                return
        self.waiting[flow].append(
            {"psn": psn, "sent": sent, "begun": begun, "done": done, "ack": ack}
            | {"read": read, "first": first}
        )

    def answer(self, flow, psn, time, acknowledged=None, begins=None, ends=None):
        response = begins is not None
        if flow not in self.covered or ahead_of(psn, self.covered[flow]) > 0:
            self.covered[flow] = psn
        covered = [e for e in self.waiting[flow] if ahead_of(e["psn"], psn) <= 0]
        for e in covered:
            if e["psn"] == acknowledged and e["ack"] and not response:
                self.values[flow, "ack"].append(time - e["sent"])
            if e["psn"] == acknowledged and e["first"] and begins:
                self.values[flow, "first"].append(time - e["sent"])
            e["ack"] = False
            if e["psn"] == psn and begins:
                e["first"] = False
        done = [e for e in covered if not e["read"]]
        reads = [e for e in covered if e["read"] and not e["done"]]
        if response and ends and reads:
            done.append(max(reads, key=lambda e: ahead_of(e["psn"], psn)))
        for e in done:
            if not e["done"]:
                self.values[flow, "completion"].append(time - e["begun"])
                self.outstanding[flow] -= 1
            e["done"] = True
            e["first"] = False
        self.waiting[flow] = [e for e in self.waiting[flow] if e["read"] or e not in done]

    def incomplete(self, flow):
        runs = {tuple(self.run(flow, psn)) for psn in self.seen[flow]}
        ends = [(self.seen[flow][r[0]][0], self.seen[flow][r[-1]][1]) for r in runs]
        return max(ends.count((True, False)), ends.count((False, True)))

    def of(self, flow, what):
        values = self.values[flow, what]
        return of(*values) if values else None


class Delivered:
    """What a flow's receiver acknowledged; PSNs do not wrap twice."""

    def __init__(self):
        self.times = []
        self.acknowledged = self.pending = 0
        self.base = self.top = None
        self.heard = self.anew = False

    def first(self, psn, payload, time):
        self.times.append(time)
        self.anew = False
        if self.base is None:
            self.base, self.top = psn - 1, psn
        if ahead_of(psn, self.base) <= 0:
            if self.heard:
                self.acknowledged += payload
                return
            self.base = psn - 1
        if ahead_of(psn, self.top) > 0:
            self.top = psn
        self.pending += payload

    def again(self, psn, time, is_request):
        if self.times:
            self.times.append(time)
        if is_request and self.base is not None and not self.heard:
            self.anew |= ahead_of(psn, self.base) == 1

    def answered(self, psn, time):
        if self.base is None:
            return
        self.heard = True
        covers, outstanding = ahead_of(psn, self.base), ahead_of(self.top, self.base)
        if covers > 0:
            part = self.pending * min(covers, outstanding) // outstanding if outstanding else 0
            self.acknowledged += part
            self.pending -= part
            self.base = psn
            self.times.append(time)

    def bits_per_second(self):
        time = max(self.times) - min(self.times) if self.times else 0
        known = self.heard or self.anew or not self.pending
        if not (time and known and self.acknowledged + self.pending):
            return None
        return self.acknowledged * 8e9 / time
