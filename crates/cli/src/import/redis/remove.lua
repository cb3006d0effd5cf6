-- Removes members of a sorted set, each only if it still has the score that it was read with.
--
-- KEYS[1]  the sorted set
-- ARGV     member and score in turn
-- Result   per member: 1 removed, 0 gone, -1 another score by now
--
-- Without a #! line on purpose: the set may live in a Redis older than 7.0, and where memory has run out, removing must still work.
local results = {}
for i = 1, #ARGV, 2 do
  local score = redis.call('ZSCORE', KEYS[1], ARGV[i])
  local result = 0
  if score then
    -- As numbers: ZSCAN and ZSCORE may write the same one differently.
    if tonumber(score) == tonumber(ARGV[i + 1]) then
      redis.call('ZREM', KEYS[1], ARGV[i])
      result = 1
    else
      result = -1
    end
  end
  results[#results + 1] = result
end
return results
