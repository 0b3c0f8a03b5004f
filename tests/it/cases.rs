//! The 102 faults that happened to people who do this job (CASES.md beside the design), and where each is held off.
//!
//! Either a test of this repository by file and name, or the part of the work that owns it and why. A test below sees to
//! it that no case is forgotten and that no test is named that is not there.

/// Case, file, test; or case, `owner: …`, why.
const CASES: &[(&str, &str, &str)] = &[
    (
        "C001 C002 C003 C004 C005 C009 C074",
        "tests/it/cases_wire.rs",
        "bytes_are_verified_and_stored_exactly_as_they_came",
    ),
    ("C006 C007", "tests/it/cases_wire.rs", "forms_and_odd_content_types_are_verified_over_their_bytes"),
    ("C008", "src/providers/body.rs", "a_form_is_read_in_the_charset_it_declares"),
    ("C010 C013 C014", "src/providers/vectors.rs", "every_core_vector_gets_the_verdict_of_the_providers_own_sdk"),
    ("C011 C079", "tests/it/cases_wire.rs", "references_keep_their_case_and_their_digits"),
    ("C012", "tests/it/cases_wire.rs", "a_signature_over_the_address_is_checked_against_the_configured_one"),
    ("C015", "tests/it/cases_wire.rs", "a_retry_with_another_body_under_the_old_signature_is_no_event"),
    (
        "C016",
        "tests/it/cases_wire.rs",
        "a_secret_with_white_space_around_it_is_trimmed_and_an_empty_one_stops_the_start",
    ),
    ("C017", "tests/it/cases_wire.rs", "what_is_no_secret_is_refused_at_the_start_by_what_it_is"),
    ("C018 C033", "tests/it/cases_wire.rs", "tenants_do_not_share_secrets_keys_or_money"),
    ("C019 C027", "tests/it/cases_wire.rs", "of_several_signatures_any_good_one_counts_and_header_names_have_no_case"),
    ("C020", "tests/it/cases_wire.rs", "several_live_secrets_are_tried_and_a_retired_one_is_named"),
    ("C021 C022", "tests/it/cases_wire.rs", "a_signature_has_an_age_in_both_directions_and_the_window_is_the_sources"),
    ("C023", "tests/it/cases_wire.rs", "an_old_event_is_replayed_without_its_age_being_asked"),
    ("C024", "tests/it/cases_wire.rs", "gzip_is_read_where_the_signature_covers_what_it_unpacks_to"),
    ("C025 C026", "tests/it/cases_wire.rs", "large_bodies_are_applied_up_to_the_limit_and_refused_above_it"),
    ("C028 C029", "tests/it/cases_wire.rs", "paths_and_methods_never_redirect_and_probes_are_no_events"),
    ("C030", "tests/it/cases_wire.rs", "handshakes_are_answered_and_are_no_events"),
    ("C031", "tests/it/cases_money.rs", "a_test_event_on_a_live_source_is_kept_and_ignored"),
    ("C032", "tests/it/cases_money.rs", "one_reference_in_two_accounts_of_the_provider_is_two_payments"),
    ("C034", "owner: settlement", "which tenant owns a payment that both were sent is seen in the comparison"),
    ("C035 C076", "tests/it/cases_money.rs", "what_is_not_needed_may_be_missing"),
    ("C036", "tests/it/cases_store.rs", "the_schema_refuses_keys_without_a_part"),
    (
        "C037 C046 C047 C050",
        "tests/it/cases_money.rs",
        "however_often_and_under_however_many_ids_a_payment_comes_it_is_posted_once",
    ),
    ("C038", "tests/it/spine.rs", "sixty_four_identical_deliveries_at_one_barrier_post_once_in_every_round"),
    ("C039", "owner: embedding", "entries of one's own beside a payout are an effect, in the same commit"),
    ("C040", "tests/it/spine.rs", "three_announcements_of_one_payment_post_once_in_all_six_orders"),
    (
        "C041 C042 C048 C052 C059",
        "tests/it/cases_money.rs",
        "no_money_is_posted_before_it_moved_and_none_is_missed_when_it_does",
    ),
    ("C043", "owner: providers", "mail events move no money; a key is composed in the provider's file, as C044 tests"),
    ("C044 C045", "tests/it/cases_money.rs", "money_without_a_reference_waits_for_a_person"),
    ("C049", "tests/it/spine.rs", "keys_outlive_a_restart_and_can_not_be_deleted"),
    ("C051", "tests/it/cases_money.rs", "different_effects_of_one_payment_never_share_a_key"),
    ("C053", "tests/it/spine.rs", "two_true_payments_of_one_invoice_are_two_entries"),
    (
        "C054",
        "tests/it/spine.rs",
        "the_same_key_with_another_amount_or_currency_is_a_conflict_that_is_shown_and_posts_nothing",
    ),
    (
        "C055 C056",
        "tests/it/cases_money.rs",
        "entities_only_move_forward_and_a_tie_is_settled_the_same_way_in_every_order",
    ),
    ("C057", "tests/it/cases_money.rs", "a_sign_up_in_any_order_with_duplicates_comes_to_the_same"),
    (
        "C058",
        "owner: embedding",
        "whether an account must be known is a rule's word (known accounts), and parks until it is",
    ),
    ("C060", "tests/it/crash.rs", "killed_at_each_point_nothing_is_lost_and_nothing_doubled"),
    ("C061 C062", "tests/it/cases_money.rs", "a_failed_apply_leaves_nothing_behind_is_shown_and_heals_by_itself"),
    ("C063", "tests/it/inside.rs", "a_slow_worker_cannot_commit_after_the_sweep"),
    ("C064", "tests/it/cases_store.rs", "rolling_restarts_under_load_leave_no_claim_behind"),
    ("C065 C066 C067 C069", "tests/it/cases_money.rs", "the_items_of_a_batch_live_and_die_alone"),
    ("C068", "tests/it/cases_wire.rs", "no_exit_of_the_intake_says_2xx_without_a_row"),
    (
        "C070",
        "owner: operator",
        "silence of a source is an alarm on the operator's side; what was missed is settlement's",
    ),
    (
        "C071 C072 C073",
        "tests/it/cases_money.rs",
        "unknown_and_moved_and_thin_shapes_end_with_their_reason_and_move_no_money",
    ),
    ("C075", "tests/it/cases_money.rs", "a_flag_that_is_text_is_read_as_what_it_says"),
    ("C077 C080 C081", "tests/it/cases_money.rs", "amounts_are_minor_units_of_their_currency_in_any_locale"),
    ("C078", "src/money.rs", "only_estimates_are_rounded"),
    ("C082 C083", "tests/it/cases_money.rs", "refunds_told_as_a_running_total_post_what_is_new"),
    ("C084", "owner: operator", "manual entries with the provider's reference come by the operator's API"),
    ("C085", "owner: embedding", "a message about a business change is keyed by it, where a rule writes it"),
    ("C086", "tests/it/cases_money.rs", "a_message_that_is_not_accepted_is_sent_again_the_same"),
    ("C087 C088", "tests/it/cases_store.rs", "many_senders_and_another_process_on_the_file_see_no_lock_error"),
    ("C089 C090", "tests/it/cases_store.rs", "a_held_write_lock_means_503_within_the_budget_and_no_loss"),
    ("C091", "tests/it/cases_store.rs", "a_client_that_goes_away_leaves_no_transaction_behind"),
    ("C092", "tests/it/cases_store.rs", "a_reader_that_stays_stops_nothing_and_the_log_shrinks_after_it"),
    ("C093 C095", "tests/it/cases_store.rs", "the_linked_sqlite_is_one_that_keeps_what_it_committed"),
    (
        "C094",
        "tests/it/cases_store.rs",
        "a_network_or_shared_file_system_is_refused_by_its_name_and_a_local_one_is_not",
    ),
    ("C096", "owner: proof", "failing syncs need a faulty disk under the file"),
    ("C097", "tests/it/cases_store.rs", "a_full_disk_means_503_and_goes_on_by_itself_when_there_is_room"),
    ("C098", "tests/it/cases_store.rs", "a_second_server_on_the_file_is_refused_and_told_who_has_it"),
    ("C099 C100", "owner: operator", "backup and its space are commands of the operator"),
    ("C101 C102", "owner: settlement", "the daily comparison"),
];

#[test]
fn every_case_has_one_place_and_every_named_test_is_there() {
    let mut seen: Vec<&str> = CASES.iter().flat_map(|(cases, ..)| cases.split(' ')).collect();
    seen.sort_unstable();
    let all: Vec<String> = (1..=102).map(|n| format!("C{n:03}")).collect();
    assert_eq!(seen, all);
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    for (cases, file, name) in CASES {
        if let Some(owner) = file.strip_prefix("owner: ") {
            assert!(["providers", "settlement", "operator", "embedding", "proof"].contains(&owner), "{cases}: {owner}");
            continue;
        }
        let text = std::fs::read_to_string(root.join(file)).unwrap_or_else(|e| panic!("{cases}: {file}: {e}"));
        assert!(
            text.contains(&format!("    fn {name}()")) || text.contains(&format!("\nfn {name}()")),
            "{cases}: {file} has no test {name}"
        );
    }
}
