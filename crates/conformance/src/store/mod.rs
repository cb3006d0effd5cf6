//! The suite of the [`Store`](duly_core::Store) port: one case per line of its contract, and one per exact meaning
//! that users rely on.

mod cancel;
mod claim;
pub mod cluster;
mod crash;
mod edge_cases;
mod harness;
mod insert;
mod lab;
mod list;
mod retention;
mod settle;

use std::{future::Future, pin::Pin};

pub use cancel::*;
pub use claim::*;
pub use crash::*;
pub use edge_cases::*;
pub use harness::*;
pub use insert::*;
pub use lab::{FixtureFuture, Lab, ServerStore, StoreFixture, Wrap, fresh_number};
pub use list::*;
pub use retention::*;
pub use settle::*;

/// One case of the suite, by its name.
#[derive(Clone, Copy)]
pub struct Case {
    /// What it proves.
    pub name: &'static str,
    /// Panics if the store breaks it.
    pub run: for<'a> fn(&'a Lab) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>,
}

/// Hands the names of all cases to another macro: the lines of the port's contract, then the exact meanings.
#[doc(hidden)]
#[macro_export]
macro_rules! with_store_cases {
    ($then:path, $($with:tt)*) => {
        $then! {
            { $($with)* }
            contract {
                insert_twice_keeps_the_first
                insert_with_other_content_conflicts
                a_cancelled_id_is_accepted_afresh
                delivered_and_dead_ids_are_duplicates
                equal_payloads_stay_two_messages
                insert_into_the_past_is_due_at_once
                an_insert_may_carry_its_past

                claim_is_ordered_and_never_early
                claim_takes_one_lane_only
                a_full_lane_does_not_hide_another
                claim_hides_until_the_lease_ends
                a_lost_lease_counts_an_attempt
                a_client_that_was_given_one_loses_it_alone
                tokens_grow
                what_was_lost_is_claimed_alone
                claim_says_when_to_look_again
                an_earlier_insert_after_a_look_is_found
                a_paused_lane_gives_nothing
                a_claim_stops_at_its_byte_budget

                settle_with_a_lost_lease_changes_nothing
                settle_twice_is_lost_the_second_time
                a_retry_waits_and_counts
                an_outage_counts_nothing
                a_release_counts_nothing_and_is_ready_at_once
                a_deferral_waits_and_changes_nothing_else
                a_retry_keeps_the_due_time
                a_deferral_replaces_the_one_before_once_the_history_is_full
                dead_letters_keep_their_bodies
                delivered_ones_lose_them
                extend_keeps_the_lease

                cancel_before_the_claim_is_done
                cancel_after_the_claim_is_too_late
                cancel_of_a_stranger_is_unknown
                cancel_after_an_unknown_outcome_says_maybe
                reschedule_moves_both_ways
                reschedule_in_flight_is_too_late
                expire_gives_up_what_waits
                replay_starts_afresh
                purge_forgets

                get_tells_the_whole_life
                when_it_was_accepted_stays_known
                list_pages_are_stable
                list_filters
                list_pages_are_bounded_in_bytes
                totals_balance
                lanes_are_counted
                forecast_counts_what_comes_due
                forecast_misses_nothing_in_a_narrow_range
                pause_is_durable
                a_lane_without_messages_is_forgotten
            }
            meanings {
                the_same_id_again_is_judged_by_its_state
                ids_are_unique_across_sinks_and_topics
                the_same_id_twice_in_one_batch_is_a_duplicate
                a_batch_is_answered_in_its_order
                more_pending_than_allowed_is_refused_whole
                priority_never_overtakes_an_older_time
                two_claimers_never_share_a_message
                what_was_cancelled_after_a_look_is_never_given
                what_was_moved_after_a_look_comes_at_its_new_time
                a_retry_is_never_before_the_due_time
                a_forged_receipt_settles_nothing
                a_lost_lease_that_is_settled_is_no_longer_suspect
                a_suspect_that_is_released_stays_one
                a_suspect_lost_again_is_lost_alone
                the_sweep_names_the_next_time_of_each_lane
                the_sweep_names_the_next_end_of_a_lease
                far_future_messages_wait_for_their_day
                a_reschedule_of_the_waiting_keeps_its_tries
                replay_keeps_id_and_content
                only_dead_letters_are_replayed_or_purged

                what_was_accepted_survives_a_crash
                what_was_settled_survives_a_crash
                what_was_cancelled_or_moved_survives_a_crash
                process_claims_are_lost_by_a_crash_and_count
                client_claims_survive_a_crash
                client_claims_survive_a_clock_that_starts_anew
                client_claims_end_with_their_lease_after_a_crash
                a_crash_makes_no_lease_longer
                a_suspect_in_flight_at_a_crash_is_blamed_alone
                tokens_grow_across_a_crash
                every_state_survives_a_clean_reopen

                every_field_comes_back
                without_bodies_everything_else_comes_back
                bodies_of_every_size_come_back
                ten_thousand_in_one_batch
                many_due_in_one_millisecond_all_come_out
                pages_hold_while_others_insert
                the_history_is_bounded
                retention_ends_by_time
                retention_ends_by_count
            }
        }
    };
}

macro_rules! tables {
    ({} contract { $($line:ident)* } meanings { $($meaning:ident)* }) => {
        /// The cases that prove the lines of the port's contract, in its order.
        pub const CONTRACT: &[Case] = &[$(Case { name: stringify!($line), run: |lab| Box::pin($line(lab)) }),*];
        /// The cases that prove the exact meanings around it.
        pub const MEANINGS: &[Case] =
            &[$(Case { name: stringify!($meaning), run: |lab| Box::pin($meaning(lab)) }),*];
    };
}
with_store_cases!(tables,);

/// Every case of the [`Store`](duly_core::Store) suite as a test of its own, in a module named after the store.
#[macro_export]
macro_rules! store_suite {
    ($name:ident, $lab:expr) => {
        mod $name {
            $crate::with_store_cases!($crate::store_tests, $lab);
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! store_tests {
    ({ $lab:expr } contract { $($line:ident)* } meanings { $($meaning:ident)* }) => {
        $(
            #[test]
            fn $line() {
                let lab = $lab;
                if lab.is_installed() {
                    $crate::block_on($crate::store::$line(&lab));
                }
            }
        )*
        $(
            #[test]
            fn $meaning() {
                let lab = $lab;
                if lab.is_installed() {
                    $crate::block_on($crate::store::$meaning(&lab));
                }
            }
        )*
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_contract_has_its_case_and_every_case_its_line() {
        let cases: Vec<_> = CONTRACT.iter().map(|case| case.name).collect();
        let documented = crate::contract_lines(include_str!("../../../core/src/store.rs"), "#[async_trait]");
        assert_eq!(documented, cases);
    }
}
