#!lua
-- Appends a message to a stream, once.
--
-- KEYS[1]  the stream
-- KEYS[2]  the marker of the message, in the slot of the stream
-- KEYS[3]  hash there: the highest token of each right to deliver into the stream
-- ARGV[1]  how long the marker lives, in ms
-- ARGV[2]  what tells this content from another under the same id
-- ARGV[3]  the most entries of the stream, about; 0: no limit
-- ARGV[4]  the age of the oldest entry in ms, about; 0: no limit
-- ARGV[5]  the right by which the message is delivered; "": there is but one node
-- ARGV[6]  its token
-- ARGV[7…] fields and values of the entry, in turn
-- Result   the id of the entry: of this one, or of the one that was appended by an earlier try
--
-- Without the flag allow-oom, a Redis that is out of memory refuses it before it begins.
local right, token = ARGV[5], tonumber(ARGV[6])
local highest = right ~= '' and tonumber(redis.call('HGET', KEYS[3], right) or 0) or 0
if right ~= '' and token < highest then
  return redis.error_reply('DULYFENCED another node delivers this by now')
end
local known = redis.call('GETEX', KEYS[2], 'PX', ARGV[1])
if known then
  local content, entry = string.match(known, '^(%S+) (%S+)$')
  if content == ARGV[2] then
    return entry
  end
end
-- An entry without its marker would be appended again by every further try. Not every server that speaks this protocol can be asked.
if redis.acl_check_cmd and not redis.acl_check_cmd('SET', KEYS[2], '', 'PX', '1') then
  return redis.error_reply("NOPERM this user may not run the 'set' command")
end
if right ~= '' and token > highest then
  redis.call('HSET', KEYS[3], right, ARGV[6])
  redis.call('PEXPIRE', KEYS[3], 30 * 86400000)
end
-- Next what may be refused: a stream that is none, or has no ids left. Then no entry was written and no marker.
local entry = redis.call('XADD', KEYS[1], '*', unpack(ARGV, 7))
redis.call('SET', KEYS[2], ARGV[2] .. ' ' .. entry, 'PX', ARGV[1])
local most, age = tonumber(ARGV[3]), tonumber(ARGV[4])
if most > 0 then
  redis.call('XTRIM', KEYS[1], 'MAXLEN', '~', ARGV[3])
end
if age > 0 then
  local time = redis.call('TIME')
  local oldest = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000) - age
  if oldest > 0 then
    redis.call('XTRIM', KEYS[1], 'MINID', '~', string.format('%.0f', oldest))
  end
end
return entry
