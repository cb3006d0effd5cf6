-- Claims entries whose retry is due.
--
-- ARGV[1] the group    ARGV[2] the consumer    ARGV[3] how many at most
-- Result  {entries, ids that were trimmed, ms until the next or -1}; an entry is {id, fields, failures, crashes, 0}
local group, consumer = ARGV[1], ARGV[2]
local now, entries, trimmed = now_ms(), {}, {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now, 'LIMIT', 0, ARGV[3])) do
  local fields = fields_of(id)
  if not pending_entry(group, id) then
    settle(group, id)
  elseif not fields then
    settle(group, id)
    trimmed[#trimmed + 1] = id
  else
    redis.call('XCLAIM', KEYS[1], group, consumer, 0, id)
    redis.call('ZREM', KEYS[3], id)
    local failures, crashes = counts_of(id)
    entries[#entries + 1] = {id, fields, failures, crashes, 0}
  end
end
local next = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')
local wait = -1
if next[2] then
  wait = math.max(0, tonumber(next[2]) - now)
end
return {entries, trimmed, wait}
