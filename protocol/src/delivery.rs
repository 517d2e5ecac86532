//! The life of a send: the only copy of its rules.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use ts_rs::TS;

/// How far a send has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryState {
    /// The relay has read it.
    Queued,
    /// It is on the relay's disk.
    Accepted,
    /// It was handed to a proxy that has not answered yet.
    SendingToProxy,
    /// The proxy saw it arrive.
    Delivered,
    /// It was certainly not typed.
    Failed,
    /// It may have been typed; nobody saw the proof.
    Indeterminate,
}

/// What happens to a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeliveryStep {
    /// The relay takes it, or takes it again at the user's wish.
    Accept,
    /// The relay hands it to a proxy.
    Forward,
    /// The proxy saw it arrive.
    Deliver,
    /// Relay or proxy knows that it was not typed.
    Fail,
    /// The proxy cannot tell, or never answered.
    LoseTrack,
}

/// A step that the present state does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a send that is {state:?} cannot {step:?}")]
pub struct IllegalStep {
    pub state: DeliveryState,
    pub step: DeliveryStep,
}

impl DeliveryState {
    /// The word on the wire and in the ledger.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Accepted => "accepted",
            Self::SendingToProxy => "sending_to_proxy",
            Self::Delivered => "delivered",
            Self::Failed => "failed",
            Self::Indeterminate => "indeterminate",
        }
    }

    /// The state a ledger's word stands for.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// Every state.
    pub const ALL: [Self; 6] =
        [Self::Queued, Self::Accepted, Self::SendingToProxy, Self::Delivered, Self::Failed, Self::Indeterminate];

    /// Whether the user has been told an end.
    pub const fn is_settled(self) -> bool {
        match self {
            Self::Delivered | Self::Failed | Self::Indeterminate => true,
            Self::Queued | Self::Accepted | Self::SendingToProxy => false,
        }
    }
}

/// The state after a step.
///
/// A send is accepted again only after it certainly failed. Late news may settle an indeterminate
/// send; nothing moves a delivered one.
pub const fn next(state: DeliveryState, step: DeliveryStep) -> Result<DeliveryState, IllegalStep> {
    use DeliveryState as S;
    use DeliveryStep as D;
    Ok(match (state, step) {
        (S::Queued | S::Failed, D::Accept) => S::Accepted,
        (S::Accepted | S::SendingToProxy, D::Forward) => S::SendingToProxy,
        (S::Accepted | S::SendingToProxy | S::Indeterminate, D::Deliver) => S::Delivered,
        (S::Queued | S::Accepted | S::SendingToProxy | S::Indeterminate, D::Fail) => S::Failed,
        (S::Accepted | S::SendingToProxy, D::LoseTrack) => S::Indeterminate,
        (
            S::Queued | S::Accepted | S::SendingToProxy | S::Delivered | S::Failed | S::Indeterminate,
            D::Accept | D::Forward | D::Deliver | D::Fail | D::LoseTrack,
        ) => return Err(IllegalStep { state, step }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn step() -> impl Strategy<Value = DeliveryStep> {
        prop::sample::select(vec![
            DeliveryStep::Accept,
            DeliveryStep::Forward,
            DeliveryStep::Deliver,
            DeliveryStep::Fail,
            DeliveryStep::LoseTrack,
        ])
    }

    proptest! {
        #[test]
        fn a_delivered_send_never_moves_again(steps in prop::collection::vec(step(), 0..20)) {
            for step in steps {
                prop_assert!(next(DeliveryState::Delivered, step).is_err());
            }
        }

        #[test]
        fn a_send_is_forwarded_again_only_after_a_certain_failure_or_without_an_answer(
            steps in prop::collection::vec(step(), 0..30)
        ) {
            let mut state = DeliveryState::Queued;
            for step in steps {
                let Ok(after) = next(state, step) else { continue };
                if after == DeliveryState::SendingToProxy {
                    prop_assert!(!state.is_settled());
                }
                if state.is_settled() && !after.is_settled() {
                    prop_assert_eq!(state, DeliveryState::Failed);
                }
                state = after;
            }
        }

        #[test]
        fn every_unsettled_send_can_be_settled(steps in prop::collection::vec(step(), 0..30)) {
            let state = steps.into_iter().fold(DeliveryState::Queued, |state, step| next(state, step).unwrap_or(state));
            prop_assert!(state.is_settled() || next(state, DeliveryStep::Fail).is_ok());
        }
    }

    #[test]
    fn the_words_of_the_states_are_those_of_the_wire() {
        for state in DeliveryState::ALL {
            assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
            assert_eq!(DeliveryState::from_word(state.as_str()), Some(state));
        }
    }
}
