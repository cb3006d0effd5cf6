-- Reads what is new for the consumer that works in a group which keeps order, if nobody has read since that consumer last did.
--
-- A read whose answer was lost, or that Redis executes long after it was given up, moves the group on: whoever read after it would
-- overtake what it was given. So each read says where the group must stand, and otherwise changes nothing.
--
-- KEYS[1] the stream    KEYS[2] who works in the group
-- ARGV[1] the group     ARGV[2] the consumer    ARGV[3] 'next' to read, 'where' to be told where the group stands
-- ARGV[4] where the group must stand: the last entry that it was given    ARGV[5] how many at most
-- Result  {'read', entries, where it stands} | {'moved', {}, where} | {'lost', {}, ''} if another consumer works in the group; an entry
--         is {id, fields}
if redis.call('GET', KEYS[2]) ~= ARGV[2] then
  return {'lost', {}, ''}
end
local where
for _, reply in ipairs(redis.call('EXISTS', KEYS[1]) == 1 and redis.call('XINFO', 'GROUPS', KEYS[1]) or {}) do
  local group = {}
  for i = 1, #reply, 2 do
    group[reply[i]] = reply[i + 1]
  end
  if group.name == ARGV[1] then
    where = group['last-delivered-id']
  end
end
if not where then
  return redis.error_reply('NOGROUP the stream or its group is gone')
end
if ARGV[3] == 'where' then
  return {'read', {}, where}
end
if where ~= ARGV[4] then
  return {'moved', {}, where}
end
local read = redis.call('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', ARGV[5], 'STREAMS', KEYS[1], '>')
local entries = read and read[1] and read[1][2] or {}
if #entries > 0 then
  where = entries[#entries][1]
end
return {'read', entries, where}
