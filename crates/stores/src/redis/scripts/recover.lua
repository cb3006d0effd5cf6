#!lua flags=allow-oom
-- What a process does about claims that nobody works on: at its start, and after an answer got lost on the way.
--
-- KEYS    as in prelude.lua
-- ARGV    per claim: id, token, what. What is "l" lost with its process, "d" released with doubt because another one is
--         the suspect, "e" and the end of its lease on the new clock, in microseconds of the store's time, or "h", the
--         instance and the number of the call whose answer never came: released, as it was before. Only then the token is not
--         known: 0. Every process counts its calls from 1, so the number alone may be another's
-- result  how many were still there; the ids of those that could not be read and are dead letters now
local found, aside = 0, {}
for i = FIRST, #ARGV, 3 do
  local id, known, what = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2]
  local held, packed = call('HGET', claim, id), call('HGET', msg, id)
  local token, _, span, holder, lost, instance, due, number = open_claim(held)
  local is_unanswered = token and what == 'h' .. instance .. number
  if token and packed and (is_unanswered or token == known) then
    local m = open_claimed(id, packed, held)
    if not m then
      set_aside_claimed(id, held, packed, is_unanswered and 0 or 1)
      aside[#aside + 1] = id
    elseif is_unanswered then
      end_claim(m)
      put(m)
      found = found + 1
    else
      if what == 'l' then
        lose_lease(m, held, 'the process ended')
      elseif what == 'd' then
        end_claim(m)
        m.lost, m.maybe = 1, 1
        put(m)
      else
        local lease_end = what:sub(2)
        add('HSET', claim, id, pack(CLAIM, token, lease_end, span, holder, lost, instance, due, number) .. m.lane)
        add('ZADD', lease, lease_end, id)
      end
      found = found + 1
    end
  end
end
finish(0)
return { tostring(found), unpack(aside) }
