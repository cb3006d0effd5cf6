-- Loads parked entries of an ordered group: those that are due are in flight from now on.
--
-- ARGV[1]   the group
-- ARGV[2]   the consumer
-- ARGV[3..] ids
-- Result    {entries, ids that were trimmed}; an entry is {id, fields, failures, crashes, wait}. A suspect, which is pending and not
--           scheduled, has a wait of -1, others of 0 ms or more. Entries that this consumer does not own are left out
local group, consumer = ARGV[1], ARGV[2]
local now, entries, trimmed = now_ms(), {}, {}
for i = 3, #ARGV do
  local id = ARGV[i]
  local holder, fields = pending_entry(group, id), fields_of(id)
  if not holder then
    settle(group, id)
  elseif holder[2] == consumer and not fields then
    settle(group, id)
    trimmed[#trimmed + 1] = id
  elseif holder[2] == consumer then
    local failures, crashes = counts_of(id)
    local due, wait = redis.call('ZSCORE', KEYS[3], id), -1
    if due then
      wait = math.max(0, tonumber(due) - now)
    end
    if wait == 0 then
      redis.call('XCLAIM', KEYS[1], group, consumer, 0, id, 'JUSTID')
      redis.call('ZREM', KEYS[3], id)
    end
    entries[#entries + 1] = {id, fields, failures, crashes, wait}
  end
end
return {entries, trimmed}
