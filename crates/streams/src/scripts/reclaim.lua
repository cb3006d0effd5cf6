-- Reclaims entries of consumers that died or lost Redis: pending, idle for long, and not waiting for a retry. All of them are suspects.
--
-- ARGV[1] the group      ARGV[2] the consumer    ARGV[3] the least idle time in ms
-- ARGV[4] the first id   ARGV[5] the largest number of entries
-- ARGV[6] 'own'     entries that this consumer had pending when it last ran
--         'idle'    entries of any consumer
--         'pending' the same, and entries that wait for a retry, in stream order: for a new leader of an ordered group
--         'missed'  the same for a leader, and its own entries, idle or not: it was assigned some without knowing it. The process lives,
--                   so they are no suspects
-- Result  {entries, ids that were trimmed, the next id or '0-0'}; an entry is {id, fields, failures, crashes, wait}. Suspects
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
      local failures, crashes = counts_of(id)
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
