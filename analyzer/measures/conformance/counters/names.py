"""The meaning of adapter counters in terms of a capture.

Names: mlx5 (kernel drivers/infiniband/hw/mlx5/counters.c), irdma (verbs.c), bnxt_re
(hw_counters.c), rxe (rxe_hw_counters.c). The meanings are from these sources and the vendors'
pages; Lumina measured that ConnectX counts one out_of_sequence per NAK (SIGCOMM 2023).
"""

from __future__ import annotations

from typing import Final

from .....kernels.named import NamedTuple

PACKETS_SENT = "packets_sent"
PACKETS_RECEIVED = "packets_received"
NAKS_SENT = "naks_sent"
NAKS_RECEIVED = "naks_received"
RNR_SENT = "rnr_naks_sent"
RNR_RECEIVED = "rnr_naks_received"
TIMEOUTS = "timeouts"
REWINDS = "rewinds"
READS_AGAIN = "reads_asked_again"
DUPLICATES = "duplicate_requests_received"
BEYOND = "requests_received_beyond"
CNPS_SENT = "cnps_sent"
CNPS_RECEIVED = "cnps_received"
MARKED_RECEIVED = "marked_received"
READS_RECEIVED = "reads_received"
WRITES_RECEIVED = "writes_received"
SENDS_RECEIVED = "sends_received"
ATOMICS_RECEIVED = "atomics_received"
DAMAGED_RECEIVED = "damaged_received"

AS_SENT: Final = "the tap may be after a loss, or the capture began late"
AS_RECEIVED: Final = "packets lost after the tap do not reach the host's counter"
AS_JUDGED: Final = "a capture shows timeouts only as silence, and no packet lost before the tap"


AS_DAMAGED: Final = "only a mirror that corrupts packets knows which ones arrived damaged"


class Counter(NamedTuple):
    """One counter of a driver."""

    driver: str
    quantity: str
    meaning: str


COUNTERS: Final = {
    "sent_pkts": Counter("rxe", PACKETS_SENT, "packets sent"),
    "rcvd_pkts": Counter("rxe", PACKETS_RECEIVED, "packets received"),
    "out_of_seq_request": Counter("rxe", NAKS_SENT, "NAKs sent for a lost packet"),
    "rcvd_seq_err": Counter("rxe", NAKS_RECEIVED, "NAKs received for a lost packet"),
    "duplicate_request": Counter("rxe, mlx5", DUPLICATES, "duplicate requests received"),
    "completer_retry_err": Counter("rxe", REWINDS, "rewinds"),
    "rcvd_rnr_err": Counter("rxe", RNR_RECEIVED, "RNR NAKs received"),
    "send_rnr_err": Counter("rxe", RNR_SENT, "RNR NAKs sent"),
    "packet_seq_err": Counter("mlx5", NAKS_RECEIVED, "NAKs received for a lost packet"),
    "out_of_sequence": Counter("mlx5", NAKS_SENT, "gaps detected, one NAK each"),
    "local_ack_timeout_err": Counter("mlx5", TIMEOUTS, "ACK timeouts"),
    "implied_nak_seq_err": Counter("mlx5", READS_AGAIN, "READ requests retransmitted after a gap"),
    "rnr_nak_retry_err": Counter("mlx5", RNR_RECEIVED, "RNR NAKs received"),
    "out_of_buffer": Counter(
        "mlx5", RNR_SENT, "requests without a receive buffer, one RNR NAK each"
    ),
    "rx_icrc_encapsulated": Counter("mlx5", DAMAGED_RECEIVED, "packets with a wrong ICRC"),
    "np_cnp_sent": Counter("mlx5", CNPS_SENT, "CNPs sent"),
    "np_ecn_marked_roce_packets": Counter("mlx5", MARKED_RECEIVED, "CE-marked packets received"),
    "rp_cnp_handled": Counter("mlx5", CNPS_RECEIVED, "CNPs received and handled"),
    "rx_read_requests": Counter("mlx5", READS_RECEIVED, "READ requests received"),
    "rx_write_requests": Counter("mlx5", WRITES_RECEIVED, "WRITE requests received"),
    "rx_atomic_requests": Counter("mlx5", ATOMICS_RECEIVED, "atomic requests received"),
    "rx_vport_rdma_unicast_packets": Counter("mlx5", PACKETS_RECEIVED, "RoCE packets received"),
    "tx_vport_rdma_unicast_packets": Counter("mlx5", PACKETS_SENT, "RoCE packets sent"),
    "cnpSent": Counter("irdma", CNPS_SENT, "CNPs sent"),
    "cnpHandled": Counter("irdma", CNPS_RECEIVED, "CNPs received and handled"),
    "RxECNMrkd": Counter("irdma", MARKED_RECEIVED, "CE-marked packets received"),
    "InRdmaReads": Counter("irdma", READS_RECEIVED, "READ requests received"),
    "iwInRdmaReads": Counter("irdma", READS_RECEIVED, "READ requests received"),
    "iwInRdmaWrites": Counter("irdma", WRITES_RECEIVED, "WRITE requests received"),
    "iwInRdmaSends": Counter("irdma", SENDS_RECEIVED, "SEND requests received"),
    "Nak Sequence Error Implied": Counter("irdma", READS_AGAIN, "READ requests retransmitted"),
    "InRdmaWrites": Counter("irdma", WRITES_RECEIVED, "WRITE requests received"),
    "InRdmaSends": Counter("irdma", SENDS_RECEIVED, "SEND requests received"),
    "RTO": Counter("irdma", TIMEOUTS, "ACK timeouts"),
    "Nak Sequence Error": Counter("irdma", NAKS_RECEIVED, "NAKs received for a lost packet"),
    "RNR received": Counter("irdma", RNR_RECEIVED, "RNR NAKs received"),
    "RNR sent": Counter("irdma", RNR_SENT, "RNR NAKs sent"),
    "Rcvd Out of order packets": Counter("irdma", BEYOND, "requests received after a gap"),
    "to_retransmits": Counter("bnxt_re", TIMEOUTS, "timeouts with retransmission"),
    "seq_err_naks_rcvd": Counter("bnxt_re", NAKS_RECEIVED, "NAKs received for a lost packet"),
    "rnr_naks_rcvd": Counter("bnxt_re", RNR_RECEIVED, "RNR NAKs received"),
    "missing_resp": Counter("bnxt_re", READS_AGAIN, "missing READ responses"),
    "dup_req": Counter("bnxt_re", DUPLICATES, "duplicate requests received"),
    "rx_ecn_marked_pkts": Counter("bnxt_re", MARKED_RECEIVED, "CE-marked packets received"),
    "tx_cnp_pkts": Counter("bnxt_re", CNPS_SENT, "CNPs sent"),
    "rx_cnp_pkts": Counter("bnxt_re", CNPS_RECEIVED, "CNPs received"),
    "oos_drop_count": Counter("bnxt_re", BEYOND, "requests dropped after a gap"),
    "rx_roce_only_pkts": Counter("bnxt_re", PACKETS_RECEIVED, "RoCE packets received"),
    "tx_roce_only_pkts": Counter("bnxt_re", PACKETS_SENT, "RoCE packets sent"),
}
