//! AlterReplicaLogDirs, API key 34.

message! {
    AlterReplicaLogDirsRequest, alter_replica_log_dirs_request: key 34, versions 1 to 2, flexible from 2;
    AlterReplicaLogDirsRequest {
        dirs: Vec<AlterReplicaLogDir>, since(0);
    }
    AlterReplicaLogDir {
        path: Arc<str>, since(0);
        topics: Vec<AlterReplicaLogDirTopic>, since(0);
    }
    AlterReplicaLogDirTopic {
        name: Arc<str>, since(0);
        partitions: Vec<i32>, since(0);
    }
}

message! {
    AlterReplicaLogDirsResponse, alter_replica_log_dirs_response: key 34, versions 1 to 2, flexible from 2;
    AlterReplicaLogDirsResponse {
        throttle_time_ms: i32, since(0);
        results: Vec<AlterReplicaLogDirTopicResult>, since(0);
    }
    AlterReplicaLogDirTopicResult {
        topic_name: Arc<str>, since(0);
        partitions: Vec<AlterReplicaLogDirPartitionResult>, since(0);
    }
    AlterReplicaLogDirPartitionResult {
        partition_index: i32, since(0);
        error_code: ErrorCode, since(0);
    }
}
