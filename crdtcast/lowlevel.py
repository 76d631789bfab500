"""For authors of runtimes: the engine of one member, its inputs and outputs, its bytes on the wire, its journal and its
event log. Programs that only use a group need `crdtcast` alone (docs/protocol.md, docs/node.md).
"""

from crdtcast.causality.hlc import HLC
from crdtcast.causality.member_id import fresh_incarnation, new_incarnation
from crdtcast.causality.messages import Delivery, Digest, Ended, Message, Transmit
from crdtcast.engine import PROGRAM, Admission, GroupEngine, GroupState, MemberInfo, Parked, Span
from crdtcast.engine.views import Views
from crdtcast.eventlog.group_log import GroupLog
from crdtcast.eventlog.writer import EventLog, Rotation
from crdtcast.group.phase import MemberPhase
from crdtcast.journal.file import FileJournal
from crdtcast.journal.interface import Journal
from crdtcast.journal.memory import MemoryJournal
from crdtcast.service.gc_tuning import rare_full_collections
from crdtcast.transport.options import NodeOptions
from crdtcast.transport.peers import LinkPhase, LinkStatus
from crdtcast.wire.decoder import FrameDecoder
from crdtcast.wire.encoder import Encoder

__all__ = [
    "HLC",
    "PROGRAM",
    "Admission",
    "Delivery",
    "Digest",
    "Encoder",
    "Ended",
    "EventLog",
    "FileJournal",
    "FrameDecoder",
    "GroupEngine",
    "GroupLog",
    "GroupState",
    "Journal",
    "LinkPhase",
    "LinkStatus",
    "MemberInfo",
    "MemberPhase",
    "MemoryJournal",
    "Message",
    "NodeOptions",
    "Parked",
    "Rotation",
    "Span",
    "Transmit",
    "Views",
    "fresh_incarnation",
    "new_incarnation",
    "rare_full_collections",
]
