//! Connections that are lost, refused, or do not answer in time.

use super::*;

#[test]
fn a_request_time_out_is_a_lost_connection_up_to_3_4_and_code_7_after() {
    for (release, expected) in [
        ("3.4", ErrorCode::NETWORK_EXCEPTION),
        ("3.5", ErrorCode::REQUEST_TIMED_OUT),
    ] {
        let config = [
            ("request.timeout.ms", "500"),
            ("retries", "0"),
            ("enable.idempotence", "false"),
            ("fletchlog.producer.version", release),
        ];
        let mut f = Fixture::new(&config);
        let futures = [f.send(1), f.send(2)];
        f.turns();
        f.producer.run_for(500);
        assert!(futures[0].try_result().is_none(), "500 ms are not more than 500 ms");
        f.producer.run_for(1);
        for future in &futures {
            assert_eq!(code(future), expected, "{release}");
        }
        assert_eq!(f.transport.wire().disconnected, [1]);
        f.answer_produce(ErrorCode::NONE, 0);
        assert_eq!(
            code(&futures[0]),
            expected,
            "an answer to a request that was given up is ignored"
        );
    }
}

#[test]
fn a_lost_connection_fails_its_requests_in_order_and_waits_before_it_is_opened_again() {
    let constant = [("reconnect.backoff.ms", "50"), ("reconnect.backoff.max.ms", "50")];
    let mut f = Fixture::new(&[("enable.idempotence", "true"), constant[0], constant[1]]);
    f.send(0);
    f.turns();
    f.answer_init(ErrorCode::NONE);
    f.send(1);
    f.turns();
    assert_eq!(
        f.values(),
        [0],
        "nothing follows the first one until it is acknowledged"
    );
    f.answer_produce(ErrorCode::NONE, 0);
    f.send(2);
    f.turns();
    assert_eq!(f.values(), [1, 2]);
    f.answer(|r| matches!(r, Request::Produce(_)), Err(Failure::Disconnected));
    f.producer.run_for(49);
    f.turns();
    assert_eq!(
        f.unanswered(),
        [(1, "produce"), (2, "metadata")],
        "node 1 is not opened yet; its second request is the one given up"
    );
    f.answer_metadata();
    f.transport.take_sent();
    f.producer.run_for(1);
    f.turns();
    assert_eq!(f.values(), [1], "the first in flight goes alone");
    f.answer_produce(ErrorCode::NONE, 1);
    assert_eq!(f.values(), [2]);
}

#[test]
fn a_connection_that_is_lost_again_and_again_is_left_alone_for_longer_each_time() {
    let mut f = Fixture::new(&[("reconnect.backoff.ms", "50"), ("reconnect.backoff.max.ms", "1000")]);
    let now = |f: &Fixture| f.transport.clock.monotonic_ms();
    f.send(0);
    f.turns();
    for expected in [50, 100, 200, 400, 800, 1000] {
        let lost = now(&f);
        f.answer(|r| matches!(r, Request::Produce(_)), Err(Failure::Disconnected));
        while !f.unanswered().contains(&(1, "produce")) {
            // The other node answers meanwhile.
            if f.unanswered().contains(&(2, "metadata")) {
                f.answer_metadata();
            }
            f.producer.run_for(1);
            f.turns();
        }
        let waited = now(&f) - lost;
        assert!(
            (expected * 4 / 5..=expected * 6 / 5).contains(&waited),
            "{waited} of {expected}"
        );
    }
    f.answer_produce(ErrorCode::NONE, 0);
    f.send(1);
    f.turns();
    let lost = now(&f);
    f.answer(|r| matches!(r, Request::Produce(_)), Err(Failure::Disconnected));
    f.producer.run_for(60);
    f.turns();
    assert_eq!(f.values(), [1], "an answer has come since: {} ms", now(&f) - lost);
}

#[test]
fn a_coordinator_that_takes_no_connection_is_looked_up_again_after_the_back_off() {
    // A lost connection asks for metadata, too.
    let asked = |fixture: &Fixture| -> Vec<_> {
        fixture
            .unanswered()
            .into_iter()
            .filter(|(_, kind)| *kind != "metadata")
            .collect()
    };
    let mut fixture = Fixture::new(&[("transactional.id", "x")]);
    // It goes on without the call.
    let interrupted = fixture.producer.init_transactions(&mut || true);
    assert!(interrupted.is_err());
    fixture.turns();
    let refused = Failure::NotConnected("refused".into());
    fixture.transport.set_ready(2, Ready::Failed(refused));
    fixture.answer_coordinator(2);
    assert_eq!(asked(&fixture), [(1, "coordinator")]);
    // The cluster does not know yet that it is gone.
    fixture.answer_coordinator(2);
    assert_eq!(asked(&fixture), []);
    fixture.producer.run_for(10);
    fixture.turns();
    fixture.turns();
    assert_eq!(asked(&fixture), [(1, "coordinator")]);
    fixture.answer_coordinator(1);
    assert_eq!(asked(&fixture), []);
    fixture.producer.run_for(10);
    fixture.turns();
    fixture.turns();
    assert_eq!(asked(&fixture), [(1, "init")]);
    fixture.answer_init(ErrorCode::NONE);
    assert!(fixture.producer.init_transactions(&mut || true).is_ok());
}
