#!lua flags=allow-oom
-- What a process that starts does about the claims it finds.
--
-- KEYS    as in prelude.lua
-- ARGV    per claim: id, token, what. What is "l" lost with its process, "d" handed back with doubt because another one
--         is the suspect, or "e" and the end of its lease on the new clock, in microseconds of the store's time
-- result  how many were still there
local found = 0
for i = FIRST, #ARGV, 3 do
  local id, what = ARGV[i], ARGV[i + 2]
  local held, packed = call('HGET', claim, id), call('HGET', msg, id)
  if held and packed then
    local token, _, span, holder, lost, instance, due = unpacked(CLAIM, held)
    if token == tonumber(ARGV[i + 1]) then
      found = found + 1
      if what == 'l' then
        lose(open(id, packed), 'the process ended')
      elseif what == 'd' then
        local m = open(id, packed)
        land(m)
        m.lost, m.maybe = 1, 1
        put(m)
      else
        local lease_end = what:sub(2)
        add('HSET', claim, id, pack(CLAIM, token, lease_end, span, holder, lost, instance, due))
        add('ZADD', lease, lease_end, id)
      end
    end
  end
end
finish(0)
return { tostring(found) }
