//! AlterClientQuotas, API key 49.

message! {
    AlterClientQuotasRequest, alter_client_quotas_request: key 49, versions 0 to 1, flexible from 1;
    AlterClientQuotasRequest {
        entries: Vec<EntryData>, since(0);
        validate_only: bool, since(0);
    }
    EntryData {
        entity: Vec<EntityData>, since(0);
        ops: Vec<OpData>, since(0);
    }
    EntityData {
        entity_type: Arc<str>, since(0);
        entity_name: Option<Arc<str>>, since(0).nullable(0);
    }
    OpData {
        key: Arc<str>, since(0);
        value: f64, since(0);
        remove: bool, since(0);
    }
}

message! {
    AlterClientQuotasResponse, alter_client_quotas_response: key 49, versions 0 to 1, flexible from 1;
    AlterClientQuotasResponse {
        throttle_time_ms: i32, since(0);
        entries: Vec<EntryData>, since(0);
    }
    EntryData {
        error_code: ErrorCode, since(0);
        error_message: Option<Arc<str>>, since(0).nullable(0);
        entity: Vec<EntityData>, since(0);
    }
    EntityData {
        entity_type: Arc<str>, since(0);
        entity_name: Option<Arc<str>>, since(0).nullable(0);
    }
}
