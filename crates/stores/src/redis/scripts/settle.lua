#!lua flags=allow-oom
-- Ends claims.
--
-- KEYS    as in prelude.lua
-- ARGV    per claim, no id twice: id, token, verdict. A verdict is a letter, whether the try counts (1 byte), whether it may have
--         arrived (1), the try (2 + n), and then: H release: nothing; W wait: when (6); R retry: when (6); X dead: the reason (1);
--         D delivered: the target's receipt behind one byte, or nothing
-- result  per claim: "d" done, "l" lost, "x" and the id: the message cannot be read and is a dead letter now
local ids = {}
for i = FIRST, #ARGV, 3 do ids[#ids + 1] = ARGV[i] end
local claims = call('HMGET', claim, unpack(ids))
local packed = call('HMGET', msg, unpack(ids))
local answers = {}

for i, id in ipairs(ids) do
  local token, verdict = ARGV[FIRST + 3 * i - 2], ARGV[FIRST + 3 * i - 1]
  local held, lease_end
  if claims[i] and packed[i] and #claims[i] >= CLAIM_LEN then held, lease_end = unpacked('>I8I8', claims[i]) end
  local is_held = held == tonumber(token) and lease_end > tick
  local m = is_held and open_claimed(id, packed[i], claims[i])
  if not is_held then
    answers[i] = 'l'
  elseif not m then
    set_aside_claimed(id, claims[i], packed[i], 1)
    answers[i] = 'x' .. id
  else
    answers[i] = 'd'
    local letter = verdict:sub(1, 1)
    local counting, maybe, try_len = unpacked('>BBI2', verdict, 2)
    local try, rest = verdict:sub(6, 5 + try_len), verdict:sub(6 + try_len)
    end_claim(m)
    record_attempt(m, try, counting, maybe)
    if letter == 'H' then
      put(m)
    elseif letter == 'W' or letter == 'R' then
      -- Wall time may have stepped back behind the due time since the claim.
      m.ready = six(math.max(time(rest), time(m.due)))
      if letter == 'R' then m.lost = 0 end
      put(m)
    elseif letter == 'D' then
      m.receipt = rest
      finished(m, DELIVERED)
      increment(counts, '#delivered', 1)
    else
      m.state, m.ended, m.reason = DEAD, now, rest:byte(1)
      add('ZADD', dead, 0, m.due .. id)
      add('HSET', msg, id, close(m))
      increment(counts, '#dead', 1)
      increment(counts, 'd' .. m.lane, 1)
    end
  end
end

finish(2 * #ids + 32)
return answers
