"""How many packets of a flow were lost before the first tap that sees it."""

from __future__ import annotations

from ...measures.troubles import CORRUPT, JUMPED, LATE, LATE_AFTER, RESENT
from ...results.flow import Flow
from ...summary.gaps import gaps_in
from ...wire.opcodes import MRC, TRANSPORT_NAMES, UC
from ..case import Case, lost_or_late, seen_in_part

GO_BACK_N = 2
"""A sender goes back N if it retransmits at least this many packets per skipped one."""


def lost_before(case: Case, flow: Flow) -> int:
    """Packets of the flow that were lost before the tap; 0 where the capture cannot tell.

    A sender that goes back N transmits runs of consecutive PSNs. Without late packets every PSN
    that a run skips is a lost packet, also when it is a retransmission that was lost. Of other
    senders, with late packets, and where the sender drops ACKs with a wrong ICRC, only those count
    that a retransmission replaced; so also where its answers are not known, because a sender skips
    what is acknowledged while it retransmits. UC packets are never retransmitted: their missing
    PSNs are lost.
    Gaps in a capture look like losses.
    """
    if flow.retransmitted_packets is None or gaps_in(flow, case.gaps):
        return 0
    troubles = case.measuring.troubles
    recovered = flow.recovered_packets or 0
    suspected = flow.capture_loss_suspected_packets or 0
    if flow.transport == TRANSPORT_NAMES[UC]:
        return max((flow.missing_packets or 0) - suspected, 0)
    jumped, resent = troubles.of(flow.id, JUMPED), troubles.of(flow.id, RESENT)
    disordered = troubles.of(flow.id, LATE) or troubles.of(flow.id, LATE_AFTER)
    peer = case.peers.get(flow.id)
    untold = peer is None or troubles.of(peer, CORRUPT)
    if seen_in_part(flow) or lost_or_late(case, flow):
        return 0  # what was lost, is late, or took another way looks the same
    if jumped is None or resent is None or disordered or untold:
        return recovered
    if resent.packets < GO_BACK_N * jumped.packets or flow.transport == TRANSPORT_NAMES[MRC]:
        return recovered
    return max(recovered, jumped.packets - suspected)
