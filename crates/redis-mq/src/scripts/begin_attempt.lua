-- An entry is about to be handled that is no new one. If it is a suspect it is handled alone, and that is written down before it
-- begins, so that the death of the process is held against it.
--
-- ARGV[1] the group    ARGV[2] the consumer    ARGV[3] the id    ARGV[4] '1' for a suspect
-- ARGV[5] the name of the attempt, '<process>-<number>', which no other has: begun twice, it is counted once; and so is one that the same
--         process begins anew as it does not know whether it has begun, for it lives
-- Result  1 begin, 0 somebody else has it by now, or nobody
local holder = pending_entry(ARGV[1], ARGV[3])
if not holder or holder[2] ~= ARGV[2] then
  return 0
end
redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[3])
redis.call('ZREM', KEYS[3], ARGV[3])
if ARGV[4] == '1' then
  local name, is_ended = string.match(redis.call('HGET', KEYS[2], ARGV[3] .. '@') or '', '^(%S*)( ?.*)$')
  if name ~= ARGV[5] then
    local is_same = is_ended == '' and string.match(name, '^.*%-') == string.match(ARGV[5], '^.*%-')
    if not is_same then
      redis.call('HINCRBY', KEYS[2], ARGV[3] .. '!', 1)
    end
    redis.call('HSET', KEYS[2], ARGV[3] .. '@', ARGV[5])
  end
end
return 1
