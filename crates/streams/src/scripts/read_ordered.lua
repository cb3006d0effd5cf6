-- Reads new entries for the leader of an ordered group, if the group is at the position that the leader knows.
--
-- A read whose reply was lost, or that Redis executes late, moves the group: a later read would overtake its entries. So each read names
-- the position of the group, and changes nothing if the group is elsewhere.
--
-- KEYS[1] the stream    KEYS[2] the leader
-- ARGV[1] the group     ARGV[2] the consumer    ARGV[3] 'next' to read, 'position' to get the position only
-- ARGV[4] the expected position: the last delivered id    ARGV[5] the largest number of entries
-- Result  {'read', entries, position} | {'moved', {}, position} | {'lost', {}, ''} if another consumer leads; an entry is {id, fields}
if redis.call('GET', KEYS[2]) ~= ARGV[2] then
  return {'lost', {}, ''}
end
local position
for _, reply in ipairs(redis.call('EXISTS', KEYS[1]) == 1 and redis.call('XINFO', 'GROUPS', KEYS[1]) or {}) do
  local group = {}
  for i = 1, #reply, 2 do
    group[reply[i]] = reply[i + 1]
  end
  if group.name == ARGV[1] then
    position = group['last-delivered-id']
  end
end
if not position then
  return redis.error_reply('NOGROUP the stream or its group is missing')
end
if ARGV[3] == 'position' then
  return {'read', {}, position}
end
if position ~= ARGV[4] then
  return {'moved', {}, position}
end
local read = redis.call('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', ARGV[5], 'STREAMS', KEYS[1], '>')
local entries = read and read[1] and read[1][2] or {}
if #entries > 0 then
  position = entries[#entries][1]
end
return {'read', entries, position}
