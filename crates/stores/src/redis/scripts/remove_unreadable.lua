#!lua flags=allow-oom
-- Removes members of `wait` that name no message: something else wrote them.
--
-- KEYS    as in prelude.lua
-- ARGV    lane, then members of `wait`
-- result  per member: "d" done, "" it is gone already
local lane, answers = ARGV[FIRST], {}
for i = FIRST + 1, #ARGV do
  local is_there = call('ZSCORE', wait, ARGV[i])
  if is_there then remove('ZREM', wait, ARGV[i]) end
  answers[#answers + 1] = is_there and 'd' or ''
end
touched[lane] = true
finish(0)
return answers
