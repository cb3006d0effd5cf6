-- Records that a handler failed on an entry: the entry is retried later, or becomes a dead letter.
--
-- ARGV[1] the group    ARGV[2] the consumer    ARGV[3] the id    ARGV[4] why
-- ARGV[5] ms to wait   ARGV[6] the attempts in all, 0 for no limit
-- ARGV[7] 'keep' or 'drop' dead letters    ARGV[8] the attempts_max dead letters, or ''
-- ARGV[9] '1' if it was handled alone, as a suspect
-- ARGV[10] the id of the attempt, unique: a repeated call counts once and has the same reply
-- Result  {'retry' | 'dead' | 'lost' (another consumer owns it) | 'not_pending' | 'trimmed', attempts}
local group, consumer, id = ARGV[1], ARGV[2], ARGV[3]
local holder, fields = pending_entry(group, id), fields_of(id)
if not holder then
  -- Trimmed while it was in flight, and removed from the pending list by that; or acknowledged.
  return {fields and 'not_pending' or 'trimmed', 0}
end
if holder[2] ~= consumer then
  return {'lost', 0}
end
if not fields then
  settle(group, id)
  return {'trimmed', 0}
end
local counted = redis.call('HGET', KEYS[2], id .. '?')
if counted then
  local name, replied = string.match(counted, '^(.*) (%d+)$')
  if name == ARGV[10] then
    return {'retry', tonumber(replied)}
  end
end
local failures = redis.call('HINCRBY', KEYS[2], id, 1)
local _, crashes = counts_of(id)
if ARGV[9] == '1' and crashes > 0 then
  crashes = redis.call('HINCRBY', KEYS[2], id .. '!', -1)
  redis.call('HSET', KEYS[2], id .. '@', ARGV[10] .. ' ended')
end
local attempts, attempts_max = failures + crashes, tonumber(ARGV[6])
if attempts_max > 0 and attempts >= attempts_max then
  move_to_dlq(group, consumer, id, fields, attempts, ARGV[4], ARGV[7], ARGV[8])
  return {'dead', attempts}
end
redis.call('HSET', KEYS[2], id .. '?', ARGV[10] .. ' ' .. attempts)
redis.call('ZADD', KEYS[3], now_ms() + tonumber(ARGV[5]), id)
return {'retry', attempts}
