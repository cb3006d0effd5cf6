//! Trial message: published alone to find out whether the broker accepts messages for this exchange.

use duly_core::SinkError;
use futures_util::FutureExt;
use lapin::{Channel, Confirmation, options::ConfirmSelectOptions};

use super::{
    call::{LOST_BEFORE, Step},
    confirm_pace::OVERDUE,
    connection::BrokerConnection,
    failure::{Cause, unconfirmed_alone},
    publisher::{CONFIRMED, Job, PublishEvent},
};

/// The outcome of a trial message for the others of its exchange.
enum TrialOutcome {
    /// The exchange accepts messages.
    Passed,
    /// The exchange denies messages.
    Denied(SinkError),
    /// The connection was lost.
    Lost,
}

/// Publishes the first of these as a trial on a channel of its own, and checks that the channel stays open. Does not wait for the confirm.
///
/// A queue whose process hangs blocks the channel. Then another message is the trial.
pub(super) async fn try_alone(connection: BrokerConnection, mut jobs: Vec<Job>) -> Step {
    let channel = match connection.channel().await {
        Ok(channel) => channel,
        Err(failure) => return Step::Unsent(jobs, failure),
    };
    let rest = jobs.split_off(1);
    let Some(job) = jobs.pop() else { return Step::TrialEnded(rest) };
    let destination = job.message.destination;
    let (same, mut others): (Vec<Job>, Vec<Job>) =
        rest.into_iter().partition(|other| other.message.destination == destination);
    let mut trial = pass(connection.clone(), channel, job).boxed();
    if others.is_empty() {
        return step(trial.await, same);
    }
    let clock = connection.clock();
    let overdue = clock.sleep_until(clock.now().mono().saturating_add(OVERDUE));
    let tried = tokio::select! {
        biased;
        tried = &mut trial => Some(tried),
        () = overdue => None,
    };
    // Messages to the same destination come last: the same queue would block them.
    others.extend(same);
    match tried {
        Some(tried) => step(tried, others),
        None => Step::Slow(others, trial.map(|tried| step(tried, Vec::new())).boxed()),
    }
}

fn step(outcome: TrialOutcome, rest: Vec<Job>) -> Step {
    match outcome {
        TrialOutcome::Passed => Step::TrialEnded(rest),
        TrialOutcome::Denied(verdict) => Step::Denied(rest, verdict),
        TrialOutcome::Lost => Step::Unsent(rest, SinkError::unreachable(LOST_BEFORE)),
    }
}

/// Publishes the message and waits until the broker has processed it.
async fn pass(connection: BrokerConnection, channel: Channel, job: Job) -> TrialOutcome {
    job.notify(PublishEvent::Sent);
    let passed = match job.message.publish(&channel).await {
        // The broker answers in order: it has processed the message by then.
        Ok(confirm) => match channel.confirm_select(ConfirmSelectOptions::default()).await {
            Ok(()) => Ok(confirm),
            // The channel was closed. The confirm has the reason.
            Err(error) => match confirm.await {
                Err(cause) => Err(cause),
                Ok(Confirmation::Ack(None)) => {
                    job.notify(PublishEvent::Done(Ok(CONFIRMED.to_owned())));
                    return TrialOutcome::Passed;
                }
                Ok(_) => Err(error),
            },
        },
        Err(error) => Err(error),
    };
    match passed {
        Ok(confirm) => {
            connection.trust().passed(&job.message);
            connection.share_channel(channel, job, confirm);
            TrialOutcome::Passed
        }
        Err(error) => {
            let (cause, verdict) = (Cause::of(&error), unconfirmed_alone(&error));
            connection.trust().ended(&cause);
            if matches!(cause, Cause::LongKey { .. }) {
                connection.trust().has_exchange(job.message.exchange.as_str());
            }
            job.notify(PublishEvent::Done(Err(verdict.clone())));
            match cause {
                Cause::Exchange(_) => TrialOutcome::Denied(verdict),
                _ if !connection.is_connected() => TrialOutcome::Lost,
                _ => TrialOutcome::Passed,
            }
        }
    }
}
