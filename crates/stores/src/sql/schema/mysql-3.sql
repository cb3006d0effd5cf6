CREATE TABLE IF NOT EXISTS delay_message (
  message_id      VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  sink            VARCHAR(64)  NOT NULL DEFAULT 'queue',
  topic           VARCHAR(255) NOT NULL,
  tag             VARCHAR(255) NULL,
  body            LONGBLOB     NULL,
  properties      LONGTEXT     NULL COMMENT 'a JSON object of strings',
  deliver_time_ms BIGINT       NOT NULL COMMENT 'when it is due; retries do not change it',
  status          VARCHAR(16)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT 'PENDING'
                  COMMENT 'PENDING (in flight too), DELIVERED, FAILED, CANCELLED',
  create_time     TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
  update_time     TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3),
  message_key     VARCHAR(255) NULL,
  content_kind    VARCHAR(8)   NULL COMMENT 'text, json or bytes; unset: text if it is UTF-8',
  priority        SMALLINT     NOT NULL DEFAULT 4,
  max_lateness_ms BIGINT       NULL,
  retry           LONGTEXT     NULL COMMENT 'what the message says of its own retries, as JSON',
  ready_time_ms   BIGINT       NULL COMMENT 'when it may be tried next',
  attempts        BIGINT       NOT NULL DEFAULT 0,
  history         LONGTEXT     NULL COMMENT 'the latest tries, as JSON',
  maybe_delivered SMALLINT     NOT NULL DEFAULT 0,
  lost            SMALLINT     NOT NULL DEFAULT 0,
  end_time_ms     BIGINT       NULL,
  dead_reason     VARCHAR(16)  NULL,
  receipt         LONGTEXT     NULL,
  content_hash    BIGINT       NULL,
  lane_no         BIGINT       NULL,
  queue_no        BIGINT       NULL COMMENT 'unset: not yet taken in; above 0: waits there; below: see Duly''s documentation',
  queue_at        BIGINT       NULL COMMENT 'in microseconds: when it is ready, when its lease ends, or when it ended',
  queue_rank      SMALLINT     NULL,
  version         BIGINT       NOT NULL DEFAULT 0,
  token           BIGINT       NOT NULL DEFAULT 0,
  lease_span_us   BIGINT       NULL,
  holder          BIGINT       NULL COMMENT 'the process that works on it; 0: a client with a receipt',
  claim_call      BIGINT       NULL COMMENT 'the piece of work that claimed it last',
  unindexed_at    BIGINT       NULL COMMENT 'when it is ready, while it waits and the index in Redis does not have it',
  PRIMARY KEY (message_id),
  KEY delay_message_queue (queue_no, queue_at, queue_rank, message_id, lost),
  KEY delay_message_status (status, deliver_time_ms, message_id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS duly_lane (
  lane_no BIGINT         NOT NULL AUTO_INCREMENT,
  name    VARBINARY(320) NOT NULL,
  paused  BIGINT         NOT NULL DEFAULT 0,
  PRIMARY KEY (lane_no),
  UNIQUE KEY duly_lane_name (name)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS duly_count (
  kind BIGINT NOT NULL,
  what BIGINT NOT NULL,
  slot BIGINT NOT NULL,
  n    BIGINT NOT NULL,
  PRIMARY KEY (kind, what, slot)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS duly_node (
  instance    BIGINT         NOT NULL,
  name        VARBINARY(255) NOT NULL,
  protocol    BIGINT         NOT NULL,
  alive_until BIGINT         NOT NULL,
  status      LONGTEXT       NOT NULL,
  PRIMARY KEY (instance)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS duly_shard_lease (
  lane_no  BIGINT NOT NULL,
  shard    BIGINT NOT NULL,
  instance BIGINT NULL,
  token    BIGINT NOT NULL,
  PRIMARY KEY (lane_no, shard)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
