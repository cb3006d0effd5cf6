-- Shared by the scripts of a group. Their keys, all in the slot of the topic:
-- KEYS[1]  the stream
-- KEYS[2]  counts: failures of an entry, by its id; crashes, which are attempts alone that began and did not end, by id .. '!'.
--          So that a repeated call counts once: by id .. '@' the last attempt alone (and ' ended' if it has), by id .. '?' the last
--          attempt whose failure was counted, and the attempts that were replied then
-- KEYS[3]  due: pending entries that are not in flight, by the time (ms) of their retry
-- KEYS[4]  the stream of dead letters
local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- A pending entry: {id, consumer, idle ms, deliveries}, or nil.
local function pending_entry(group, id)
  return redis.call('XPENDING', KEYS[1], group, id, id, 1)[1]
end

-- The fields of an entry, or nil if it is no longer there.
local function fields_of(id)
  local entry = redis.call('XRANGE', KEYS[1], id, id)[1]
  return entry and entry[2]
end

-- Failures and crashes of an entry.
local function counts_of(id)
  local both = redis.call('HMGET', KEYS[2], id, id .. '!')
  return tonumber(both[1] or 0), tonumber(both[2] or 0)
end

-- Removes an entry from the group, with its counts.
local function settle(group, id)
  redis.call('XACK', KEYS[1], group, id)
  redis.call('HDEL', KEYS[2], id, id .. '!', id .. '@', id .. '?')
  redis.call('ZREM', KEYS[3], id)
end

-- Makes a dead letter of an entry and settles it. `keep` is 'keep' or 'drop', `max_len` a length or ''.
local function move_to_dlq(group, consumer, id, fields, attempts, reason, keep, max_len)
  if keep == 'keep' then
    local entry = {KEYS[4]}
    if max_len ~= '' then
      entry[2], entry[3], entry[4] = 'MAXLEN', '~', max_len
    end
    entry[#entry + 1] = '*'
    for i = 1, #fields do
      entry[#entry + 1] = fields[i]
    end
    local more = {
      'duly-dead-reason', reason, 'duly-dead-at', string.format('%.0f', now_ms()),
      'duly-dead-attempts', attempts, 'duly-dead-group', group, 'duly-dead-consumer', consumer,
      'duly-dead-stream', KEYS[1], 'duly-dead-id', id,
    }
    for i = 1, #more do
      entry[#entry + 1] = more[i]
    end
    redis.call('XADD', unpack(entry))
  end
  settle(group, id)
end
