//! What is done to one produce request, and how it is written (spec 9.5.1).

use std::fmt;

use fletchlog_api::ErrorCode;

/// What happens to one produce request and its response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// `ok`: forwarded, answered.
    Ok,
    /// `lost-ack`: forwarded, the connection closed instead of an answer.
    LostAck,
    /// `disconnect`: not forwarded, the connection closed.
    Disconnect,
    /// `refused:C[:LSO][@P]` and `appended-refused:C[:LSO][@P]`.
    Refused {
        /// Forwarded all the same.
        appended: bool,
        /// The error in the answer.
        code: ErrorCode,
        /// logStartOffset of the answer, -1 none.
        log_start_offset: i64,
        /// Only this partition; the others are forwarded and answered as they are.
        partition: Option<i32>,
    },
    /// `drop` and `drop-appended`: never an answer; the connection is stuck until request.timeout.ms.
    Drop {
        /// Forwarded all the same.
        appended: bool,
    },
    /// `late:MS`: forwarded now, answered later.
    Late(i64),
    /// `wait:MS/ACTION`: the action later.
    Wait(i64, Box<Action>),
}

/// Why faults could not be made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum FaultError {
    /// An action that cannot be read.
    #[error("action `{text}` of request {number}: {reason}")]
    Action {
        /// Number of the request.
        number: u64,
        /// The action as given.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A rate outside 0 .. 1.
    #[error("rate {name}={rate} must be from 0 to 1")]
    Rate {
        /// Which.
        name: &'static str,
        /// Its value.
        rate: f64,
    },
    /// The rates exclude each other, so their sum cannot pass 1.
    #[error("the rates add up to {0}; a request meets one fault at most, so they must not pass 1")]
    Sum(f64),
}

const FORMS: &str = "expected ok, lost-ack, disconnect, refused:CODE[:LOG_START][@PARTITION], appended-refused:CODE[:LOG_START][@PARTITION], drop, drop-appended, late:MS or wait:MS/ACTION";

impl Action {
    /// A refusal of the whole request.
    pub fn refused(code: ErrorCode) -> Self {
        Self::Refused {
            appended: false,
            code,
            log_start_offset: -1,
            partition: None,
        }
    }

    /// Reads an action.
    ///
    /// # Errors
    /// What is wrong, without the text itself.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if let Some(rest) = text.strip_prefix("wait:") {
            let (ms, then) = rest.split_once('/').ok_or("expected wait:MS/ACTION")?;
            return Ok(Self::Wait(millis(ms)?, Box::new(Self::parse(then)?)));
        }
        if let Some(ms) = text.strip_prefix("late:") {
            return Ok(Self::Late(millis(ms)?));
        }
        match text {
            "ok" => return Ok(Self::Ok),
            "lost-ack" => return Ok(Self::LostAck),
            "disconnect" => return Ok(Self::Disconnect),
            "drop" => return Ok(Self::Drop { appended: false }),
            "drop-appended" => return Ok(Self::Drop { appended: true }),
            _ => {}
        }
        let (appended, rest) = match (text.strip_prefix("refused:"), text.strip_prefix("appended-refused:")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => return Err(FORMS.to_owned()),
        };
        let (rest, partition) = match rest.split_once('@') {
            Some((rest, partition)) => (rest, Some(number(partition, "a partition")?)),
            None => (rest, None),
        };
        let (code, log_start_offset) = match rest.split_once(':') {
            Some((code, offset)) => (code, number(offset, "a log start offset")?),
            None => (rest, -1),
        };
        let known = match code.parse::<i16>() {
            Ok(number) => ErrorCode::from_code(number),
            Err(_) => ErrorCode::from_name(code),
        };
        let code = known.filter(|&c| c != ErrorCode::NONE).ok_or_else(|| {
            format!("`{code}` is no error code of Kafka; give its number or name, such as 19 or NOT_ENOUGH_REPLICAS")
        })?;
        Ok(Self::Refused {
            appended,
            code,
            log_start_offset,
            partition,
        })
    }
}

fn number<T: std::str::FromStr>(text: &str, what: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is not {what}"))
}

fn millis(text: &str) -> Result<i64, String> {
    let ms: i64 = number(text, "a number of milliseconds")?;
    if (0..=86_400_000).contains(&ms) {
        Ok(ms)
    } else {
        Err(format!("{ms} ms is not between 0 and a day"))
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ok => f.write_str("ok"),
            Self::LostAck => f.write_str("lost-ack"),
            Self::Disconnect => f.write_str("disconnect"),
            Self::Drop { appended: false } => f.write_str("drop"),
            Self::Drop { appended: true } => f.write_str("drop-appended"),
            Self::Late(ms) => write!(f, "late:{ms}"),
            Self::Wait(ms, then) => write!(f, "wait:{ms}/{then}"),
            Self::Refused {
                appended,
                code,
                log_start_offset,
                partition,
            } => {
                write!(f, "{}refused:{}", if *appended { "appended-" } else { "" }, code.code())?;
                if *log_start_offset != -1 {
                    write!(f, ":{log_start_offset}")?;
                }
                if let Some(partition) = partition {
                    write!(f, "@{partition}")?;
                }
                Ok(())
            }
        }
    }
}
