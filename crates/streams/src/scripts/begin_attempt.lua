-- Records that an attempt of an entry begins that is not new. A suspect is handled alone, and recorded before it begins, so that a crash
-- of the process counts against it.
--
-- ARGV[1] the group    ARGV[2] the consumer    ARGV[3] the id    ARGV[4] '1' for a suspect
-- ARGV[5] the id of the attempt, unique, '<process>-<number>': a repeated call counts once, and so does a further attempt of a process
--         that does not know whether the one before was recorded
-- Result  1 begin, 0 the entry belongs to another consumer, or is not pending
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
