use super::*;

#[test]
fn every_form_of_an_action_reads_and_prints_the_same() {
    for text in [
        "ok",
        "lost-ack",
        "disconnect",
        "refused:6",
        "refused:59:5@1",
        "appended-refused:20",
        "appended-refused:7@2",
        "drop",
        "drop-appended",
        "late:360",
        "wait:500/refused:6",
        "refused:-1",
        "wait:10/late:20",
    ] {
        assert_eq!(Action::parse(text).unwrap().to_string(), text);
    }
    assert_eq!(
        Action::parse("refused:NOT_ENOUGH_REPLICAS").unwrap().to_string(),
        "refused:19"
    );
}

#[test]
fn a_bad_action_is_named_with_its_request() {
    for (text, part) in [
        ("explode", "expected ok"),
        ("refused:4711", "no error code"),
        ("refused:NOPE", "no error code"),
        ("refused:0", "no error code"),
        ("refused:6@x", "a partition"),
        ("late:-1", "between 0 and a day"),
        ("wait:5", "wait:MS/ACTION"),
        ("wait:5/bang", "expected ok"),
    ] {
        let error = Faults::scripted([(3, text)]).unwrap_err().to_string();
        assert!(
            error.contains(part) && error.contains(text) && error.contains("request 3"),
            "{error}"
        );
    }
    assert!(Faults::scripted([(0, "ok")]).is_err());
    assert!(
        Faults::seeded(
            1,
            FaultRates {
                lost_ack: 1.5,
                ..FaultRates::default()
            }
        )
        .is_err()
    );
    assert!(
        Faults::seeded(
            1,
            FaultRates {
                lost_ack: 0.6,
                refused: 0.6,
                disconnect: 0.0
            }
        )
        .is_err()
    );
}

#[test]
fn the_same_seed_gives_the_same_faults_at_about_the_asked_rates() {
    let rates = FaultRates {
        lost_ack: 0.1,
        refused: 0.2,
        disconnect: 0.05,
    };
    let draw = |seed| -> Vec<Action> {
        let faults = Faults::seeded(seed, rates).unwrap();
        (1..=10_000).map(|n| faults.action(n)).collect()
    };
    let first = draw(7);
    assert_eq!(first, draw(7));
    assert_ne!(first, draw(8));
    let count = |wanted: &dyn Fn(&Action) -> bool| first.iter().filter(|a| wanted(a)).count();
    assert!(count(&|a| *a == Action::LostAck).abs_diff(1000) < 120);
    assert!(count(&|a| matches!(a, Action::Refused { .. })).abs_diff(2000) < 160);
    assert!(count(&|a| *a == Action::Disconnect).abs_diff(500) < 90);
}
