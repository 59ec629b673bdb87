"""`rocescope replay`: the same traffic under several load-balancing strategies."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ..analyzer.errors import UsageError
from ..report.whole_file import whole_file
from .options.output import REPORT_OUTPUT, ReportOutput
from .options.progress import reading_shown, steps_shown
from .options.reading import JOB_LOGS, JobLogs
from .options.taps import OFFERED, Offered
from .table import Parameter

if TYPE_CHECKING:
    from ..replay.compare.packets import Load
    from ..replay.compare.prepared import PreparedReplay
    from ..replay.packets.model.model import EngineResult
    from ..replay.results import ReplayResult

KEPT_BYTES = 128
"""Bytes kept of every frame in a pcap of received packets: all headers, as in `generate`."""


def replay(
    *files: Annotated[Path, Parameter(name="FILE")],
    fabric: str,
    strategy: Annotated[list[str] | None, Parameter(alias="-s", negative="")] = None,
    traffic: Annotated[Offered, Parameter(name="*")] = OFFERED,
    jobs: Annotated[list[str] | None, Parameter(negative="")] = None,
    vary: Annotated[list[str] | None, Parameter(negative="")] = None,
    window: str | None = None,
    packets: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    offer: str | None = None,
    model: str | None = None,
    lossless: str | None = None,
    priority: Annotated[list[str] | None, Parameter(negative="")] = None,
    transport: str | None = None,
    fail: Annotated[list[str] | None, Parameter(negative="")] = None,
    converge: str = "never",
    runs: int = 1,
    seed: int = 1,
    received: Path | None = None,
    sent: Path | None = None,
    logs: Annotated[JobLogs, Parameter(name="*")] = JOB_LOGS,
    to: Annotated[ReportOutput, Parameter(name="*")] = REPORT_OUTPUT,
    top: int = 5,
    brief: Annotated[bool, Parameter(show_default=False)] = False,
) -> int:
    """Replay captured or generated traffic on a fabric with several strategies.

    Parameters
    ----------
    files
        Captures of the hosts' traffic; several files are several taps, and a packet at several taps
        counts once.
    fabric
        A fabric such as leaf-spine:leaves=4,spines=4,hosts=8, or a file, see rocescope fabric.
    strategy
        ecmp, ecmp-qpn, wcmp, subflow, static, srv6 or assign, with options such as
        ecmp:hash=crc32,seed=7. May be repeated; default ecmp and assign. The packet engine also
        has host-spray, switch-random, switch-rr, jsq, adaptive, flowlet, ofan and others, see
        docs/replay.md; all selects every strategy that fits the fabric.
    jobs
        Training jobs (computations and messages that wait for each other) in place of captures:
        collective=ring,workers=64,size=256MB,compute=2ms,iterations=3, or file=trace.goal, see
        docs/replay.md. May be repeated; --pattern then adds traffic beside the jobs.
    vary
        Repeat the replay with other values of a parameter: spines=4,8,16, rate=100G,400G,
        message-size=1MB,4MB, down=none,spine1, buffer=200kB,800kB, or with its option:
        jobs.size=1MB,8MB. May be repeated for all combinations, see docs/replay.md.
    window
        Also compute loads per time window of this length, such as 10ms.
    packets
        Simulate every packet through queues; implied by strategies that decide per packet, --model,
        --offer, --jobs, --lossless, --priority, --transport, --fail, --received, --sent and --runs.
    offer
        When the packets of captures are sent. captured (default): at their captured times. closed:
        each message after what it waited for in the capture, and after the time that the host then
        took. asap: without this time, unless it follows messages of other queue pairs.
    model
        Packets and queues, such as buffer=800kB,ecn=80kB+320kB,ack-every=4,forwarding=cut-through;
        for captures also qps=4,message-size=2x; see docs/replay.md.
    lossless
        Queues without drops: pfc (default without a buffer): switches with a shared buffer that
        pause their neighbours, such as pfc:buffer=32MB,alpha=1/8 or pfc:xoff=200kB,headroom=100kB;
        or infinite: queues without a limit, as in arXiv 2507.21372.
    priority
        A traffic class, such as data:weight=70 or background:weight=30,lossless=no,dscp=8+10; may
        be repeated. Captured flows use the class of their DSCP, other flows the first class; with
        --jobs and --pattern, the pattern uses the last class. Classes without weight have strict
        priority over classes with weight.
    transport
        How hosts send, such as recovery=sack,congestion=nscc,rto=70us, see docs/replay.md.
    fail
        A failure during the run: spine1@100us..250us, 1% (of the cables), leaf1-spine1=100G or
        plane1. May be repeated; recovery is ideal unless --transport sets it.
    converge
        Time until switches that are not next to a failure route around it: 0, a time such as 50us,
        or never.
    runs
        Runs of the packet engine, on all cores; run r has seed + r.
    seed
        Seed of the first run of the packet engine.
    received
        Write a pcap of the data packets that the first strategy delivered in the first run.
    sent
        Write a pcap of the first strategy in the first run, as captured at the hosts: the first
        transmission of every data packet, and one ACK per message. Needs --pattern or --jobs.
    top
        Number of worst links and flows in the report; JSON has at least 5 links and 10 flows.
    brief
        Only the decision: what another strategy saves, and the cheapest that brings most of it.
    """
    if (to.chosen() != "table" or vary) and brief:
        raise UsageError("--brief is for the report of one case, without --vary")
    if top < 1:
        raise UsageError("--top must be 1 or more")

    from ..replay.compare.prepared import PreparedReplay
    from ..replay.compare.request import DEFAULT_STRATEGIES
    from ..replay.compare.summaries import ALL_PATHS, Listed

    request = traffic.request(
        fabric,
        files,
        strategies=tuple(strategy or DEFAULT_STRATEGIES),
        jobs=tuple(jobs or ()),
        window=window or "",
        packets=packets or received is not None or sent is not None,
        offer=offer or "",
        model=model or "",
        lossless=lossless or "",
        priority=tuple(priority or ()),
        transport=transport or "",
        fail=tuple(fail or ()),
        converge=converge,
        runs=runs,
        seed=seed,
        job_logs=logs.patterns(),
    )
    if vary:
        if received is not None or sent is not None:
            raise UsageError("--vary cannot be combined with --received and --sent")
        from ..replay.compare.vary import replay_varied

        with steps_shown(to.progress) as tell:
            result, complete = replay_varied(request, vary, tell)
        _report(result, to, top, brief)
        return 0 if complete else 130
    prepared = PreparedReplay(request)
    if sent is not None and files:
        raise UsageError("--sent needs --pattern or --jobs: a capture shows what hosts sent")
    listed = Listed(max(top, 5), max(top, 10), ALL_PATHS if to.chosen() == "json" else 0)
    source = prepared.request.sources[0]
    if prepared.request.by_packet:
        if files:  # what is generated, is generated run by run
            with reading_shown(to.progress, source) as read:
                prepared.read(read, messages=True)
        with steps_shown(to.progress) as tell:
            result, complete = prepared.by_packets(
                prepared.request.strategies,
                tell,
                None
                if received is None and sent is None
                else partial(_write, received, sent, prepared),
            )
        _report(prepared.beside_captured(result, listed), to, top, brief)
        return 0 if complete else 130
    strategies = prepared.parsed()
    with reading_shown(to.progress, source) as read:
        prepared.read(read)
    with steps_shown(to.progress) as tell:
        result = prepared.place(strategies, tell, listed)
    _report(prepared.beside_captured(result, listed), to, top, brief)
    return 0


def _write(
    received: Path | None,
    sent: Path | None,
    prepared: PreparedReplay,
    load: Load,
    result: EngineResult,
) -> None:
    """Write the packets of a run as pcaps."""
    from ..replay.packets.received import write_sent

    if received is not None:
        _write_received(received, prepared, load, result)
    if sent is not None:
        with whole_file(sent) as out:
            write_sent(out, load.workload, result)


def _write_received(file: Path, prepared: PreparedReplay, load: Load, result: EngineResult) -> None:
    """Write the data packets of a run in arrival order, as a pcap."""
    from ..replay.generate.pcap_writer import write_pcap
    from ..replay.packets.received import received_packets, write_received

    with whole_file(file) as out:
        if load.pairs is None:
            write_received(out, load.workload, result)
            return
        packets = received_packets(load.workload, result)
        write_pcap(out, load.pairs, prepared.fabric.addresses, KEPT_BYTES, None, [packets])


def _report(result: ReplayResult, to: ReportOutput, top: int, brief: bool) -> None:
    from ..report.terminal.replay import fill_brief, fill_replay

    def html() -> bytes:
        from ..report.html.documents import replay_html

        return replay_html(result, top)

    to.write_replay(
        result,
        lambda page: fill_brief(page, result) if brief else fill_replay(page, result, top),
        html,
    )
