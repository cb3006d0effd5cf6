#!lua flags=allow-oom
-- Starts leases afresh.
--
-- KEYS    as in prelude.lua
-- ARGV    the end of the leases in microseconds of the store's time, their span in microseconds; then id and token, in pairs
-- result  per pair: "d" done, "l" lost
local lease_end, span = ARGV[FIRST], ARGV[FIRST + 1]
local answers = {}
for i = FIRST + 2, #ARGV, 2 do
  local id, held = ARGV[i], call('HGET', claim, ARGV[i])
  local answer = 'l'
  if held and #held >= CLAIM_LEN then
    local token, old_end, _, holder, lost, instance, due, number = unpacked(CLAIM, held)
    if token == tonumber(ARGV[i + 1]) and old_end > tick then
      add('HSET', claim, id, pack(CLAIM, token, lease_end, span, holder, lost, instance, due, number) .. held:sub(CLAIM_LEN + 1))
      add('ZADD', lease, lease_end, id)
      answer = 'd'
    end
  end
  answers[#answers + 1] = answer
end
finish(0)
return answers
