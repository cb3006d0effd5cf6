-- What the scripts of a group share. They are given these keys, all in the slot of the topic:
-- KEYS[1]  the stream
-- KEYS[2]  tries: how often handlers failed on an entry, by its id; how often it was begun alone and not ended, by id .. '!'.
--          So that a call that is repeated after a lost answer counts once: by id .. '@' the attempt that was begun alone last (and
--          ' ended' if it has), by id .. '?' the attempt whose failure was counted last, and the attempts that were told then
-- KEYS[3]  due: pending entries that nobody works on, by when (ms) they are to be handled
-- KEYS[4]  the stream of dead letters
local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Who has an entry: {id, consumer, idle ms, deliveries}, or nil if nobody has.
local function pending_entry(group, id)
  return redis.call('XPENDING', KEYS[1], group, id, id, 1)[1]
end

-- The fields of an entry, or nil if it is no longer there.
local function fields_of(id)
  local entry = redis.call('XRANGE', KEYS[1], id, id)[1]
  return entry and entry[2]
end

-- How often a handler failed on it, and how often it was begun alone and not ended.
local function tries(id)
  local both = redis.call('HMGET', KEYS[2], id, id .. '!')
  return tonumber(both[1] or 0), tonumber(both[2] or 0)
end

-- It is over: nothing of it stays in the group.
local function settle(group, id)
  redis.call('XACK', KEYS[1], group, id)
  redis.call('HDEL', KEYS[2], id, id .. '!', id .. '@', id .. '?')
  redis.call('ZREM', KEYS[3], id)
end

-- Makes a dead letter of it: written, acknowledged and forgotten in one. `keep` is 'keep' or 'drop', `most` a length or ''.
local function move_to_dlq(group, consumer, id, fields, attempts, reason, keep, most)
  if keep == 'keep' then
    local entry = {KEYS[4]}
    if most ~= '' then
      entry[2], entry[3], entry[4] = 'MAXLEN', '~', most
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
