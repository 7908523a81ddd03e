//! DeleteTopics, API key 20.

message! {
    DeleteTopicsRequest, delete_topics_request: key 20, versions 1 to 6, flexible from 4, with for_version of_version;
    DeleteTopicsRequest {
        topics: Vec<DeleteTopicState>, since(6);
        topic_names: Vec<Arc<str>>, between(0, 5).ignorable();
        timeout_ms: i32, since(0);
    }
    DeleteTopicState {
        name: Option<Arc<str>> = None, since(6).nullable(6);
        topic_id: [u8; 16], since(6);
    }
}

message! {
    DeleteTopicsResponse, delete_topics_response: key 20, versions 1 to 6, flexible from 4;
    DeleteTopicsResponse {
        throttle_time_ms: i32, since(1).ignorable();
        responses: Vec<DeletableTopicResult>, since(0);
    }
    DeletableTopicResult {
        name: Option<Arc<str>>, since(0).nullable(6);
        topic_id: [u8; 16], since(6).ignorable();
        error_code: ErrorCode, since(0);
        error_message: Option<Arc<str>> = None, since(5).nullable(5).ignorable();
    }
}

/// First version in which a topic may be named by its id.
const TOPIC_STATES: i16 = 6;

impl DeleteTopicsRequest {
    /// In an older version, moves the names of the topics into its own list. Kafka: `DeleteTopicsRequest.Builder#build`.
    fn for_version(mut self, version: i16) -> Self {
        if version < TOPIC_STATES {
            self.topic_names = self.topics.drain(..).filter_map(|topic| topic.name).collect();
        }
        self
    }

    /// The reverse of [`Self::for_version`]. Kafka: `DeleteTopicsRequest#topics`.
    fn of_version(mut self, version: i16) -> Self {
        if version < TOPIC_STATES {
            let named = |name| delete_topics_request::DeleteTopicState {
                name: Some(name),
                ..Default::default()
            };
            self.topics = self.topic_names.drain(..).map(named).collect();
        }
        self
    }
}
