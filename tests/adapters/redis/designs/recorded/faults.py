"""Planted faults: each drops one rule, and has to be found."""

from enum import Enum, auto


class Fault(Enum):
    """The rule that is broken."""

    RECORD_IN_A_STEP_OF_ITS_OWN = auto()
    """The record is written behind the EXEC, not in it."""
    RECORD_AT_THE_END = auto()
    """A segment writes its part of the record when it has come to its end, which an error keeps it from."""
    RECORD_OF_THE_LAST_SEGMENT = auto()
    """A segment writes its part over those of the others."""
    DOT_AT_DERIVATION = auto()
    """The record has no dot; who derives takes the next one."""
    CONTEXT_AT_DERIVATION = auto()
    """Who derives takes its engine's context: the same dots, in another order after a restart."""
    OWN_OPERATIONS_BETWEEN = auto()
    """The engine goes on to send operations of its own while a dot is reserved."""
    STILL_UNTIL_THE_ANSWER = auto()
    """The engine stands still until the answer only, not until the message is derived."""
    DERIVED_AFTER_DELIVERIES = auto()
    """What is recorded is derived at the end of the next commit."""
    OWN_TIME = auto()
    """Who derives takes a time stamp of its own."""
    DERIVED_FROM_MEMORY = auto()
    """Whether a key was there is looked up when it is derived."""
    DROPPED_WHEN_ENDED = auto()
    """Of a member that sends nothing any more the record is dropped, not parked."""
    LEAVES_AT_ONCE = auto()
    """A leave does not wait for what is recorded."""
    PARKED_WITHOUT_DOT = auto()
    """What is recorded of an ended incarnation is sent as new, under the next one's dot, whatever the group has."""
    NOT_GIVEN_BACK = auto()
    """A reservation of which nothing has come uses its dot up."""
    FAILED_NX_SENDS = auto()
    """A condition that was not met is derived as if it had been."""
    REPLIES_FROM_DERIVATION = auto()
    """Clients are answered with what the effects come to, not with what the server has said."""
    RUNS_AGAIN = auto()
    """After a broken connection what was in flight is run again, without a look at the record."""
    SAYS_NOTHING_WRITTEN = auto()
    """After a broken connection clients are told that nothing was written, without a look at the record."""
    KEEPS_THE_FENCE = auto()
    """A gateway that comes back does not take the fence anew: its last EXEC may be on its way still."""
    LINKS_BEFORE_DERIVING = auto()
    """A gateway that finds a record dials the others before it derives."""
    ORPHAN_LOST = auto()
    """A command that takes the last of a key's data takes its deadline, too, as the server does by itself."""
    HIDDEN_STAYS = auto()
    """A command that ends a whole key leaves the value that is hidden under it."""
    REISSUED_AS_IT_WAS = auto()
    """What is sent again does not ask anew whether its key begins with it."""
    MEMORY_WITHOUT_RECORD = auto()
    """A gateway that outlives its server's memory hands over its messages, and not what is recorded and answered."""
    DERIVED_IS_UNSURE = auto()
    """What was derived counts as unanswered while the commit that stores it is in flight."""
    COUNT_WITHOUT_RECORD = auto()
    """A gateway that counts stored messages, to notice that its server has lost some, leaves the record out."""
