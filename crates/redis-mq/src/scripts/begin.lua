-- An entry is about to be handled that is no new one. If it is a suspect it is handled alone, and that is written down before it
-- begins, so that the death of the process is held against it.
--
-- ARGV[1] the group    ARGV[2] the consumer    ARGV[3] the id    ARGV[4] '1' for a suspect
-- Result  1 begin, 0 somebody else has it by now, or nobody
local holder = held(ARGV[1], ARGV[3])
if not holder or holder[2] ~= ARGV[2] then
  return 0
end
redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[3])
redis.call('ZREM', KEYS[3], ARGV[3])
if ARGV[4] == '1' then
  redis.call('HINCRBY', KEYS[2], ARGV[3] .. '!', 1)
end
return 1
