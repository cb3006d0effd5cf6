-- Takes over what a process left that is gone: pending, idle for so long, and not waiting for its next try. Whoever worked on
-- it died, or lost Redis: all of these are suspects.
--
-- ARGV[1] the group      ARGV[2] the consumer    ARGV[3] idle for at least so many ms
-- ARGV[4] where to begin ARGV[5] how many at most
-- ARGV[6] 'own' for what this consumer itself left before it was started again, 'all' for anybody's, 'every' for that and also
--         what waits for its next try: those have a wait of 0 ms or more, suspects have -1
-- Result  {entries, ids that were trimmed away, where to go on or '0-0'}; an entry is {id, fields, failures, crashes, wait}
local group, consumer, now = ARGV[1], ARGV[2], now_ms()
local next, ids, trimmed
if ARGV[6] == 'own' then
  next, ids, trimmed = '0-0', {}, {}
  local page = redis.call('XPENDING', KEYS[1], group, ARGV[4], '+', ARGV[5], consumer)
  for i = 1, #page do
    ids[i] = page[i][1]
  end
  if #page == tonumber(ARGV[5]) then
    next = '(' .. page[#page][1]
  end
else
  local page =
    redis.call('XAUTOCLAIM', KEYS[1], group, consumer, ARGV[3], ARGV[4], 'COUNT', ARGV[5], 'JUSTID')
  next, ids, trimmed = page[1], page[2], page[3]
  for i = 1, #trimmed do
    settle(group, trimmed[i])
  end
end
local entries = {}
for i = 1, #ids do
  local id = ids[i]
  local due = redis.call('ZSCORE', KEYS[3], id)
  if not due or ARGV[6] == 'every' then
    local fields = fields_of(id)
    if fields then
      local failures, crashes = tries(id)
      local wait = due and math.max(0, tonumber(due) - now) or -1
      entries[#entries + 1] = {id, fields, failures, crashes, wait}
    else
      settle(group, id)
      trimmed[#trimmed + 1] = id
    end
  end
end
return {entries, trimmed, next}
