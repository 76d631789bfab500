"""Who is let to the door: however many come, the honest host's handshake is not the one that ends."""

from crdtcast.transport.connection_limits import ConnectionAdmission, Visit


def test_the_oldest_of_the_host_with_most_gives_way() -> None:
    ended: list[str] = []
    admission = ConnectionAdmission(max_handshakes=4, max_host_connections=100)

    def come(host: str, name: str) -> Visit:
        visit = Visit(host, lambda: ended.append(name))
        assert admission.enter(visit)
        return visit

    come("honest", "h")
    for number in range(50):
        come("flood", f"f{number}")
    come("second", "s")
    assert "h" not in ended and "s" not in ended
    assert ended == [f"f{number}" for number in range(48)]


def test_a_host_that_has_left_may_come_again() -> None:
    admission = ConnectionAdmission(max_handshakes=4, max_host_connections=2)
    visits = [Visit("a", lambda: None) for _ in range(3)]
    assert [admission.enter(visit) for visit in visits] == [True, True, False]
    admission.greeted(visits[0])
    assert not admission.enter(visits[2]), "a connection counts as long as it is open"
    admission.leave(visits[0])
    assert admission.enter(visits[2])
