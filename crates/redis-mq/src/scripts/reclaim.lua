-- Takes over what a process left that is gone: pending, idle for so long, and not waiting for its next try. Whoever worked on
-- it died, or lost Redis: all of these are suspects.
--
-- ARGV[1] the group      ARGV[2] the consumer    ARGV[3] idle for at least so many ms
-- ARGV[4] where to begin ARGV[5] how many at most
-- ARGV[6] 'own'    what this consumer itself left before it was started again
--         'idle'    anybody's
--         'pending'  anybody's, and also what waits for its next try, in the order of the stream: for a group that keeps order
--         'missed' the same for a consumer that already works in such a group: also what is its own, idle or not. It holds more than
--                  it knows of, and as it lives it did not die of that: these are no suspects
-- Result  {entries, ids that were trimmed away, where to go on or '0-0'}; an entry is {id, fields, failures, crashes, wait}. Suspects
--         have a wait of -1, others of 0 ms or more
local group, consumer, now = ARGV[1], ARGV[2], now_ms()
local in_order = ARGV[6] == 'pending' or ARGV[6] == 'missed'
local next, ids, trimmed, owners = '0-0', {}, {}, {}
if ARGV[6] == 'idle' then
  local page =
    redis.call('XAUTOCLAIM', KEYS[1], group, consumer, ARGV[3], ARGV[4], 'COUNT', ARGV[5], 'JUSTID')
  next, ids, trimmed = page[1], page[2], page[3]
  for i = 1, #trimmed do
    settle(group, trimmed[i])
  end
else
  local page
  if in_order then
    page = redis.call('XPENDING', KEYS[1], group, ARGV[4], '+', ARGV[5])
  else
    page = redis.call('XPENDING', KEYS[1], group, ARGV[4], '+', ARGV[5], consumer)
  end
  for i = 1, #page do
    local id, owner, idle = page[i][1], page[i][2], page[i][3]
    local is_free = owner == consumer or idle >= tonumber(ARGV[3]) or redis.call('ZSCORE', KEYS[3], id)
    if not in_order then
      ids[#ids + 1] = id
    elseif is_free then
      redis.call('XCLAIM', KEYS[1], group, consumer, 0, id, 'JUSTID')
      ids[#ids + 1], owners[id] = id, owner
    end
  end
  if #page == tonumber(ARGV[5]) then
    next = '(' .. page[#page][1]
  end
end
local entries = {}
for i = 1, #ids do
  local id = ids[i]
  local due = redis.call('ZSCORE', KEYS[3], id)
  if not due or in_order then
    local fields = fields_of(id)
    if fields then
      local failures, crashes = tries(id)
      local wait = -1
      if due then
        wait = math.max(0, tonumber(due) - now)
      elseif ARGV[6] == 'missed' and owners[id] == consumer then
        wait = 0
      end
      entries[#entries + 1] = {id, fields, failures, crashes, wait}
    else
      settle(group, id)
      trimmed[#trimmed + 1] = id
    end
  end
end
return {entries, trimmed, next}
