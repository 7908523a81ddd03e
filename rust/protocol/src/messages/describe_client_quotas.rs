//! DescribeClientQuotas, API key 48.

message! {
    DescribeClientQuotasRequest, describe_client_quotas_request: key 48, versions 0 to 1, flexible from 1;
    DescribeClientQuotasRequest {
        components: Vec<ComponentData>, since(0);
        strict: bool, since(0);
    }
    ComponentData {
        entity_type: Arc<str>, since(0);
        match_type: i8, since(0);
        r#match: Option<Arc<str>>, since(0).nullable(0);
    }
}

message! {
    DescribeClientQuotasResponse, describe_client_quotas_response: key 48, versions 0 to 1, flexible from 1;
    DescribeClientQuotasResponse {
        throttle_time_ms: i32, since(0);
        error_code: ErrorCode, since(0);
        error_message: Option<Arc<str>>, since(0).nullable(0);
        entries: Option<Vec<EntryData>>, since(0).nullable(0);
    }
    EntryData {
        entity: Vec<EntityData>, since(0);
        values: Vec<ValueData>, since(0);
    }
    EntityData {
        entity_type: Arc<str>, since(0);
        entity_name: Option<Arc<str>>, since(0).nullable(0);
    }
    ValueData {
        key: Arc<str>, since(0);
        value: f64, since(0);
    }
}
