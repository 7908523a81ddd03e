//! Keys and values of the records of `__transaction_state` (spec 10.3). Kafka: `TransactionLog`.
//!
//! A key or a value of an unknown version is refused.

value! {
    TransactionLogKey, transaction_log_key: versions 0 to 0, flexible from i16::MAX;
    TransactionLogKey {
        transactional_id: Arc<str>, since(0);
    }
}

// In Kafka's table the ids of a topic are never null; here null is read as well, as none.
value! {
    TransactionLogValue, transaction_log_value: versions 0 to 1, flexible from 1;
    TransactionLogValue {
        producer_id: i64, since(0);
        previous_producer_id: i64 = -1, since(1).tag(0);
        next_producer_id: i64 = -1, since(1).tag(1);
        producer_epoch: i16, since(0);
        transaction_timeout_ms: i32, since(0);
        transaction_status: i8, since(0);
        transaction_partitions: Option<Vec<PartitionsSchema>>, since(0).nullable(0);
        transaction_last_update_timestamp_ms: i64, since(0);
        transaction_start_timestamp_ms: i64, since(0);
        client_transaction_version: i16, since(1).tag(2);
        next_producer_epoch: i16 = -1, since(1).tag(3);
    }
    PartitionsSchema {
        topic: Arc<str>, since(0);
        partition_ids: Option<Vec<i32>>, since(0).nullable(0);
    }
}
